//! A timer that fires when it says: tokio's rounds to a millisecond, which at 10 Mbit/s is a packet.

use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

#[cfg(target_os = "linux")]
pub(super) use linux::Alarm;
#[cfg(not(target_os = "linux"))]
pub(super) use portable::Alarm;

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::OwnedFd;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;

    use super::{Context, Instant, Poll, io};

    /// One re-armable deadline, on a timerfd.
    pub(in crate::shard) struct Alarm {
        timer: AsyncFd<OwnedFd>,
        armed: Option<Instant>,
    }

    impl Alarm {
        pub(in crate::shard) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            #[expect(
                deprecated,
                reason = "an OwnedFd stays open as long as its AsyncFd; the new form is unsafe"
            )]
            let timer = AsyncFd::new(timer)?;
            Ok(Self { timer, armed: None })
        }

        /// Wakes the task at `due`; ready once it has passed.
        pub(in crate::shard) fn poll(
            &mut self,
            cx: &mut Context<'_>,
            now: Instant,
            due: Option<Instant>,
        ) -> Poll<()> {
            let Some(due) = due else { return Poll::Pending };
            if due <= now {
                return Poll::Ready(());
            }
            if self.armed != Some(due) {
                let wait = due - now;
                let value = Timespec {
                    tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: i64::from(wait.subsec_nanos()),
                };
                let once = Itimerspec {
                    it_interval: Timespec {
                        tv_sec: 0,
                        tv_nsec: 0,
                    },
                    it_value: value,
                };
                if timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).is_err() {
                    return Poll::Ready(());
                }
                self.armed = Some(due);
            }
            while let Poll::Ready(ready) = self.timer.poll_read_ready(cx) {
                let Ok(mut ready) = ready else {
                    return Poll::Ready(());
                };
                let mut expirations = [0; 8];
                if rustix::io::read(&self.timer, &mut expirations).is_ok() {
                    self.armed = None;
                    return Poll::Ready(());
                }
                ready.clear_ready();
            }
            Poll::Pending
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod portable {
    use std::pin::Pin;

    use super::{Context, Instant, Poll, io};

    /// One re-armable deadline, on tokio's timer.
    pub(in crate::shard) struct Alarm(Pin<Box<tokio::time::Sleep>>);

    impl Alarm {
        pub(in crate::shard) fn new() -> io::Result<Self> {
            Ok(Self(Box::pin(tokio::time::sleep_until(
                tokio::time::Instant::now(),
            ))))
        }

        pub(in crate::shard) fn poll(
            &mut self,
            cx: &mut Context<'_>,
            now: Instant,
            due: Option<Instant>,
        ) -> Poll<()> {
            let Some(due) = due else { return Poll::Pending };
            if due <= now {
                return Poll::Ready(());
            }
            if self.0.deadline().into_std() != due {
                self.0.as_mut().reset(due.into());
            }
            self.0.as_mut().poll(cx)
        }
    }
}
