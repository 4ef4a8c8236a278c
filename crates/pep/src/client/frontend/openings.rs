//! Intercepted connections that may wait for the server's answer: a state machine.
//!
//! Two report each of them: the packet socket its opening segments, the listener the connection itself. Which segments the kernel's
//! gate lets pass, and when it follows a doubt, neither knows, and either may be heard first. A connection gets one flow in any
//! order, for another one would be seen at its destination:
//!
//! ```text
//!   segment ─► asked ─► answer ─► connected ─► connection, which gets its flow
//!   segment ─► asked ─► connection ─► answer, which the connection waits for
//!   connection, which opens a flow ─► segment: nothing is asked
//! ```

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::rc::Rc;

use bentpipe_proto::opening::Opening;
use tokio::sync::{Notify, oneshot};

/// Connections that wait at once; beyond that a host's repetition gets its chance.
const MAX_WAITING: usize = 1024;
/// Connections of one host that wait at once, so that one that scans ports leaves room for the others.
const MAX_WAITING_OF_HOST: usize = 128;

/// Connections that wait, with flows `F`, and those that do so no more.
#[derive(Debug)]
pub(super) struct Openings<F> {
    waiting: HashMap<Opening, Wait<F>>,
    /// Connections that the kernel has handed over, until their end.
    taken: HashSet<Opening>,
}

/// A connection that waits.
#[derive(Debug)]
struct Wait<F> {
    stage: Stage<F>,
    /// Told of the host's further attempts, and that one of them has become a connection.
    attempted: Rc<Notify>,
}

#[derive(Debug)]
enum Stage<F> {
    /// The server has been asked.
    Asked,
    /// The kernel has let the connection in meanwhile: it waits here for its flow.
    Awaited(oneshot::Sender<F>),
    /// The server has connected.
    Connected(F),
}

/// Flow of a connection that the kernel hands over.
#[derive(Debug)]
pub(super) enum FlowOfTaken<F> {
    /// No flow was asked for.
    None,
    /// A flow is there: the server has connected.
    Connected(F),
    /// The server has been asked for it; without an answer there is none to be had.
    Asked(oneshot::Receiver<F>),
}

impl<F> Default for Openings<F> {
    fn default() -> Self {
        Self {
            waiting: HashMap::new(),
            taken: HashSet::new(),
        }
    }
}

impl<F> Openings<F> {
    /// Takes in an opening segment of `opening`. True if nothing else is to be done about it: the connection waits, or is there.
    pub(super) fn on_segment(&self, opening: &Opening) -> bool {
        let waiting = self.waiting.get(opening);
        if let Some(wait) = waiting {
            wait.attempted.notify_one();
        }
        waiting.is_some() || self.taken.contains(opening)
    }

    /// True if another connection of `host` may wait.
    pub(super) fn has_room(&self, host: IpAddr) -> bool {
        let of_host = self.waiting.keys();
        let of_host = of_host.filter(|other| other.source.ip() == host);
        self.waiting.len() < MAX_WAITING && of_host.count() < MAX_WAITING_OF_HOST
    }

    /// Has `opening` wait for the answer of a server that is asked now. What comes back is told of the host's further attempts.
    pub(super) fn ask(&mut self, opening: Opening) -> Rc<Notify> {
        let attempted = Rc::<Notify>::default();
        let wait = Wait {
            stage: Stage::Asked,
            attempted: attempted.clone(),
        };
        self.waiting.insert(opening, wait);
        attempted
    }

    /// Takes in that the server has connected. True if the connection is yet to be let in.
    pub(super) fn on_answer(&mut self, opening: &Opening, flow: F) -> bool {
        let Some(mut wait) = self.waiting.remove(opening) else {
            return false;
        };
        if let Stage::Awaited(connection) = wait.stage {
            // One that has ended meanwhile drops it.
            let _ = connection.send(flow);
            return false;
        }
        wait.stage = Stage::Connected(flow);
        self.waiting.insert(*opening, wait);
        true
    }

    /// True if the server has connected, and the connection is yet to be let in.
    pub(super) fn is_connected(&self, opening: &Opening) -> bool {
        let wait = self.waiting.get(opening);
        wait.is_some_and(|wait| matches!(wait.stage, Stage::Connected(_)))
    }

    /// Takes in that the server has refused, or that the host did not come back.
    pub(super) fn give_up(&mut self, opening: &Opening) {
        self.waiting.remove(opening);
    }

    /// Takes in a connection that the kernel hands over, and says which flow it gets.
    pub(super) fn on_connection(&mut self, opening: Opening) -> FlowOfTaken<F> {
        self.taken.insert(opening);
        let Some(mut wait) = self.waiting.remove(&opening) else {
            return FlowOfTaken::None;
        };
        wait.attempted.notify_one();
        if let Stage::Connected(flow) = wait.stage {
            return FlowOfTaken::Connected(flow);
        }
        let (connection, answer) = oneshot::channel();
        wait.stage = Stage::Awaited(connection);
        self.waiting.insert(opening, wait);
        FlowOfTaken::Asked(answer)
    }

    /// Takes in the end of a connection.
    pub(super) fn on_end(&mut self, opening: &Opening) {
        self.taken.remove(opening);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    const FLOW: u32 = 7;

    fn opening(host: u8, port: u16) -> Opening {
        Opening {
            source: SocketAddr::from(([10, 10, 0, host], port)),
            destination: SocketAddr::from(([10, 30, 0, 2], 25)),
        }
    }

    /// The server is asked if the state machine says so; true then.
    fn asks(openings: &mut Openings<u32>, opening: Opening) -> bool {
        let known = openings.on_segment(&opening);
        if !known {
            openings.ask(opening);
        }
        !known
    }

    #[test]
    fn one_that_is_let_in_after_the_answer_gets_its_flow() {
        let (mut openings, one) = (Openings::default(), opening(1, 1));
        assert!(asks(&mut openings, one));
        assert!(!openings.is_connected(&one));
        assert!(openings.on_answer(&one, FLOW), "it is to be let in");
        assert!(openings.is_connected(&one));
        assert!(!asks(&mut openings, one), "the attempt that is let in");
        let FlowOfTaken::Connected(FLOW) = openings.on_connection(one) else {
            panic!("another flow")
        };
        assert!(!openings.is_connected(&one), "nothing is left to be let in");
    }

    /// As when a doubt ends, or begins, while its segment is on its way through the kernel.
    #[test]
    fn one_that_is_let_in_before_the_answer_waits_for_its_flow() {
        let (mut openings, one) = (Openings::default(), opening(1, 1));
        assert!(asks(&mut openings, one));
        let FlowOfTaken::Asked(mut answer) = openings.on_connection(one) else {
            panic!("another flow")
        };
        assert!(answer.try_recv().is_err());
        assert!(!openings.on_answer(&one, FLOW), "it has been let in");
        assert_eq!(answer.try_recv(), Ok(FLOW));
        assert!(!asks(&mut openings, one), "a segment that is sent again");
        openings.on_end(&one);
        assert!(asks(&mut openings, one), "another connection");
    }

    #[test]
    fn one_whose_segment_is_seen_after_it_asks_nothing() {
        let (mut openings, one) = (Openings::<u32>::default(), opening(1, 1));
        let flow = openings.on_connection(one);
        assert!(matches!(flow, FlowOfTaken::None), "it opens its own");
        assert!(!asks(&mut openings, one));
        // So does the attempt that is let in, on a busy machine.
        let two = opening(1, 2);
        assert!(asks(&mut openings, two) && openings.on_answer(&two, FLOW));
        let flow = openings.on_connection(two);
        assert!(matches!(flow, FlowOfTaken::Connected(FLOW)));
        assert!(!asks(&mut openings, two));
    }

    #[test]
    fn one_that_waits_for_its_flow_ends_with_a_refusal() {
        let (mut openings, one) = (Openings::<u32>::default(), opening(1, 1));
        assert!(asks(&mut openings, one));
        let FlowOfTaken::Asked(mut answer) = openings.on_connection(one) else {
            panic!("another flow")
        };
        openings.give_up(&one);
        assert_eq!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }

    #[test]
    fn hosts_leave_room_for_each_other() {
        let mut openings = Openings::<u32>::default();
        let host = |host: u8| IpAddr::from([10, 10, 0, host]);
        for port in 0..128 {
            assert!(openings.has_room(host(1)));
            openings.ask(opening(1, port));
        }
        assert!(!openings.has_room(host(1)) && openings.has_room(host(2)));
        for other in 2..9 {
            (0..128).for_each(|port| drop(openings.ask(opening(other, port))));
        }
        assert!(!openings.has_room(host(9)));
        openings.give_up(&opening(1, 0));
        assert!(openings.has_room(host(9)) && openings.has_room(host(1)));
    }
}
