//! An interception in force in a namespace, where it is also removed, as the crate asks.

use bentpipe_pep::client::intercept::{Installed, Interception, KernelAnswer};
use bentpipe_sys::netns::NetNs;

pub(crate) struct Inside<'a>(&'a NetNs, Option<Installed>);

impl<'a> Inside<'a> {
    pub(crate) fn install(ns: &'a NetNs, interception: &Interception) -> Self {
        Self(
            ns,
            Some(ns.enter(|| interception.install()).unwrap().unwrap()),
        )
    }

    /// Does something with it.
    pub(crate) fn at<T>(&mut self, work: impl FnOnce(&mut Installed) -> T + Send) -> T
    where
        T: Send,
    {
        let installed = self.1.as_mut().unwrap();
        self.0.enter(|| work(installed)).unwrap()
    }

    pub(crate) fn refuse(&mut self, to: &str, kind: KernelAnswer) {
        self.at(|installed| installed.refuse(to.parse().unwrap(), kind))
            .unwrap();
    }

    pub(crate) fn remove(mut self) {
        let installed = self.1.take().unwrap();
        self.0.enter(|| installed.remove()).unwrap().unwrap();
    }

    /// As SIGKILL ends its process: nothing is tidied up.
    pub(crate) fn kill(mut self) {
        std::mem::forget(self.1.take());
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let installed = self.1.take();
        let _ = self.0.enter(|| drop(installed));
    }
}
