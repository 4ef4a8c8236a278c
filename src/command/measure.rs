//! `bentpipe measure`: what is the tunnel worth on this link?

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use bentpipe_pep::client::measure::{self, Fault, Report, Wishes};
use bentpipe_pep::config::ClientFile;
use bentpipe_pep::status::MEASURED_FILE;
use tempfile::NamedTempFile;

use super::daemon::config;
use super::operator;
use crate::cli::{Measure, Role};
use crate::exit::Failure;

/// Measures, and prints what came of it.
pub(crate) fn run(options: &Measure) -> Result<(), Failure> {
    let file = ClientFile::load(config(options.config.as_deref(), Role::Client)?)?;
    let wishes = Wishes {
        size: options.size,
        rounds: options.rounds,
        max_bytes: options.max_bytes,
    };
    let page = options.report.as_deref().map(Page);
    // Known before bytes are spent. What an interruption leaves is nothing, so the file is not kept meanwhile.
    if let Some(page) = &page {
        page.aside()
            .map(drop)
            .map_err(operator::plain)
            .with_context(|| page.fault())?;
    }
    let url = options.url.as_deref();
    let report = measure::run(&file, url, &wishes, &mut tell);
    let report = report.map_err(|fault| match fault {
        Fault::FrontEnd(..) => Failure::NoDaemon(fault.to_string()),
        fault if fault.is_usage() => Failure::Usage(fault.to_string()),
        // Each fault names its cause itself.
        fault => Failure::Run(anyhow!(fault.to_string())),
    })?;
    match options.json {
        true => super::print(&report.to_json()),
        false => super::print(report.to_string().trim_end()),
    }?;
    remember(&file, &report);
    if let Some(page) = &page {
        page.write(&report)
            .map_err(operator::plain)
            .with_context(|| page.fault())?;
        tell(&format!("report in {}", page.0.display()));
    }
    Ok(())
}

/// Tells whoever sits there how far it is; without a standard error there is nobody.
fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Leaves the result where the client finds it, for `status` and the page. Who may not write there has seen it all the same.
fn remember(file: &ClientFile, report: &Report) {
    let (ClientFile::Tunnel(config), Some(measured)) = (file, report.measured()) else {
        return;
    };
    let directory = &config.state_dir;
    let write = || {
        // A new file under a name of its own: the directory belongs to the daemon's user, and may hold links of its.
        let mut aside = tempfile::Builder::new().tempfile_in(directory)?;
        aside.write_all(&serde_json::to_vec(&measured)?)?;
        operator::give(aside.as_file(), directory)?;
        aside.persist(directory.join(MEASURED_FILE))?;
        Ok::<_, io::Error>(())
    };
    if let Err(error) = write() {
        tracing::debug!("not shown by `status`: {}: {error}", directory.display());
    }
}

/// Place of `--report`.
struct Page<'a>(&'a Path);

impl Page<'_> {
    fn fault(&self) -> String {
        format!("--report {}", self.0.display())
    }

    /// An empty file beside the place; it is gone when it is dropped.
    fn aside(&self) -> io::Result<NamedTempFile> {
        if self.0.symlink_metadata().is_ok_and(|old| !old.is_file()) {
            let fault = "this is no file; name another one";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, fault));
        }
        let directory = match self.0.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        tempfile::Builder::new()
            // Less what the user's mask takes away.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory)
    }

    /// Puts the page in its place, whole.
    fn write(&self, report: &Report) -> io::Result<()> {
        let mut aside = self.aside()?;
        aside.write_all(report.to_html()?.as_bytes())?;
        aside.as_file().sync_all()?;
        aside.persist(self.0).map_err(|fault| fault.error)?;
        Ok(())
    }
}
