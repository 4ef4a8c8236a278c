//! Fields of a head: those that concern one connection only, and those that tell where the body ends.

use httparse::Header;

/// Fields that are for the next hop alone (RFC 9110 §7.6.1), besides those that `Connection` names.
const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "te",
    "upgrade",
];

/// Fields that say where a message goes and ends: no `Connection` can take them away.
const KEPT: [&str; 3] = ["host", "content-length", "transfer-encoding"];

/// Fields of a head, as far as they matter here.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// A transfer coding is named.
    pub(super) coded: bool,
    /// The body is `chunked`, and that alone.
    pub(super) chunked: bool,
    /// Length of the body, in bytes.
    pub(super) length: Option<u64>,
    /// The connection ends after this message.
    pub(super) closes: bool,
    /// The connection goes on (HTTP/1.0).
    pub(super) keeps: bool,
    /// Another protocol is asked for.
    pub(super) upgrades: bool,
    /// Names that `Connection` lists, in lower case.
    listed: Vec<String>,
}

impl Fields {
    /// Reads what matters; `None` if the fields contradict each other.
    pub(super) fn read(headers: &[Header<'_>]) -> Option<Self> {
        let mut fields = Self::default();
        let mut codings = 0;
        for header in headers {
            let name = header.name.to_ascii_lowercase();
            // A line end inside a value would begin another field.
            if header
                .value
                .iter()
                .any(|byte| matches!(byte, b'\r' | b'\n' | 0))
            {
                return None;
            }
            match name.as_str() {
                "content-length" => {
                    for length in text(header)?.split(',') {
                        let length = number(length.trim())?;
                        if fields
                            .length
                            .replace(length)
                            .is_some_and(|other| other != length)
                        {
                            return None;
                        }
                    }
                }
                "transfer-encoding" => {
                    codings += 1;
                    fields.coded = true;
                    fields.chunked = text(header)?.trim().eq_ignore_ascii_case("chunked");
                }
                "connection" | "proxy-connection" => {
                    let options = text(header)?.split(',');
                    let options = options.map(|option| option.trim().to_ascii_lowercase());
                    fields.listed.extend(options);
                }
                _ => {}
            }
        }
        fields.chunked &= codings == 1;
        let lists = |option: &str| fields.listed.iter().any(|listed| listed == option);
        let (closes, keeps) = (lists("close"), lists("keep-alive"));
        let asked = headers
            .iter()
            .any(|header| header.name.eq_ignore_ascii_case("upgrade"));
        fields.upgrades = asked && lists("upgrade");
        (fields.closes, fields.keeps) = (closes, keeps);
        Some(fields)
    }

    /// True if a field is for this hop alone.
    fn is_for_this_hop(&self, name: &str) -> bool {
        let is = |other: &&str| name.eq_ignore_ascii_case(other);
        let listed = self
            .listed
            .iter()
            .any(|listed| name.eq_ignore_ascii_case(listed));
        HOP_BY_HOP.iter().any(is) || listed && !KEPT.iter().any(is)
    }
}

fn text<'a>(header: &Header<'a>) -> Option<&'a str> {
    std::str::from_utf8(header.value).ok()
}

/// A number in digits alone: `+5`, `0x5` and the like are read differently by different programs.
fn number(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

/// Writes the fields that go on, but for those that `drops` names; `upgrades` keeps `Upgrade`.
pub(super) fn write_fields(
    head: &mut Vec<u8>,
    headers: &[Header<'_>],
    fields: &Fields,
    drops: impl Fn(&str) -> bool,
    upgrades: bool,
) {
    for header in headers {
        let upgrade = upgrades && header.name.eq_ignore_ascii_case("upgrade");
        if (fields.is_for_this_hop(header.name) && !upgrade) || drops(header.name) {
            continue;
        }
        head.extend_from_slice(header.name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(header.value);
        head.extend_from_slice(b"\r\n");
    }
}
