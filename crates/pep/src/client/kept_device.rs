//! The client's device for all but TCP: which interface it is to be, and with which addresses. The
//! guardian compares that with the kernel's state, and makes the device anew if it is gone.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bentpipe_proto::packets::MTU;
use bentpipe_sys::device::{self, Device};
use bentpipe_sys::tun::BulkTun;
use bentpipe_sys::{link, route};
use ipnet::IpNet;
use tokio::sync::mpsc::UnboundedSender;

/// The client's device, as its reader and the guardian share it.
#[derive(Debug)]
pub(crate) struct KeptDevice {
    /// The number of the interface that is read now.
    index: Mutex<u32>,
    /// Addresses that it is to have.
    assigned: Mutex<Vec<IpNet>>,
    /// Takes a device that was made anew.
    renewed: UnboundedSender<BulkTun>,
}

impl KeptDevice {
    /// A record of the device that exists now.
    ///
    /// # Errors
    /// No such device exists.
    pub(crate) fn new(renewed: UnboundedSender<BulkTun>) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            index: Mutex::new(link::index(device::NAME)?),
            assigned: Mutex::default(),
            renewed,
        }))
    }

    /// Gives the device these `addresses` in the place of those that it had. No comparison sees it half changed, which would put an
    /// old address back and blame another program.
    ///
    /// # Errors
    /// The kernel does not set them; the device is to have what it had before.
    pub(crate) fn assign(&self, addresses: Vec<IpNet>) -> io::Result<()> {
        let mut assigned = lock(&self.assigned);
        device::set_addresses(&assigned, &addresses)?;
        *assigned = addresses;
        Ok(())
    }

    /// The addresses that the device is to have.
    pub(crate) fn assigned(&self) -> Vec<IpNet> {
        lock(&self.assigned).clone()
    }

    /// Difference between the device and what it is to be.
    pub(super) fn fault(&self) -> io::Result<Option<&'static str>> {
        let links = link::links()?;
        let index = *lock(&self.index);
        let named = links.iter().find(|link| link.name == device::NAME);
        let Some(found) = named.filter(|link| link.index == index) else {
            let renamed = links.iter().any(|link| link.index == index);
            return Ok(Some(if renamed { "was renamed" } else { "is gone" }));
        };
        if !found.up {
            return Ok(Some("was set down"));
        }
        if usize::try_from(found.mtu) != Ok(MTU) {
            return Ok(Some("has another MTU"));
        }
        let assigned = lock(&self.assigned);
        let present = link::addresses()?;
        let has = |wanted: &IpNet| {
            let same =
                |address: &link::Address| address.index == index && address.as_set() == *wanted;
            present.iter().any(same)
        };
        let usable =
            |address: &&IpNet| address.addr().is_ipv4() || route::ipv6_enabled(device::NAME);
        let lost = assigned.iter().filter(usable).any(|wanted| !has(wanted));
        Ok(lost.then_some("has lost an address"))
    }

    /// Makes the device what it is to be.
    pub(super) fn mend(&self) -> io::Result<()> {
        let index = *lock(&self.index);
        let found = link::links()?;
        let whole = |link: &link::Link| link.name == device::NAME && link.index == index;
        if found.iter().any(whole) {
            link::set_up(device::NAME, u32::try_from(MTU).unwrap_or(1500))?;
        } else {
            let tun = Device::create(MTU)?.into_tun();
            *lock(&self.index) = link::index(device::NAME)?;
            // Its reader has ended only if the client has.
            let _ = self.renewed.send(tun);
        }
        device::set_addresses(&[], &lock(&self.assigned))
    }
}

/// The value of `mutex`, whatever became of the last thread that changed it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
