//! A second line for what this machine itself sends: a table that no other program can flush while its owner lives.
//!
//! ```text
//!   process ─► output: a table of ours marks what is carried and what may leave ─► bentpipe_hold: no mark ─► dropped
//! ```
//!
//! The kernel routes a packet of this machine before any table can mark it, so no routing rule can bar it as one
//! bars what is forwarded. The table `inet bentpipe_hold` belongs to a netlink socket of this process:
//! `nft flush ruleset` of others passes it by. The flag `persist` keeps the table in force when the process is killed.
//!
//! Rules are encoded here because the `nft` of Debian 12 (1.0.6) does not know `persist`.

use std::io;

use netlink_bindings::nftables::{
    Chained, CmpOps, MetaKeys, Nfgenmsg, PushExprListAttrs, PushRuleAttrs, Registers, TableFlags,
    VerdictCode,
};
use netlink_bindings::traits::Pusher;
use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::netlink::Netlink;
use crate::nftables::OUTPUT;

/// The table's name.
pub const HOLD_TABLE: &str = "bentpipe_hold";

/// Tables of [`owned_tables`], neither of which comes to be.
const TRIAL_TABLE: &str = "bentpipe_trial";
const ABSENT_TABLE: &str = "bentpipe_absent";

const CHAIN: &[u8] = b"output";
/// `NFPROTO_INET`.
const INET: u8 = 1;
/// Priority of a chain behind all that mark.
const FILTER_PRIORITY: i32 = 0;
/// `LOOPBACK_IFINDEX`: the index of `lo` in every network namespace.
const LOOPBACK: u32 = 1;
const REGISTER: u32 = Registers::Reg1 as u32;

/// The table in force; it goes with [`Hold::remove`], and stays if this process dies.
pub struct Hold {
    owner: Netlink,
    mask: u32,
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hold").finish_non_exhaustive()
    }
}

impl Hold {
    /// Puts the table in force, in place of one that a killed process left: what has none of the bits of `mask` in its mark is
    /// dropped. `None` where the kernel knows no tables with an
    /// owner that outlive the owner (before Linux 6.9).
    ///
    /// # Errors
    /// The privilege is missing, or another process that lives has the table.
    pub fn put_up(mask: u32) -> io::Result<Option<Self>> {
        let mut owner = Netlink::open(NETLINK_NETFILTER)?;
        match owner.transact(|first| creation(first, mask)) {
            Ok(()) => Ok(Some(Self { owner, mask })),
            Err(error) if is_unknown(&error) => Ok(None),
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!(
                    "the table inet {HOLD_TABLE} cannot be made, is it another process's? {error}"
                ),
            )),
        }
    }

    /// The bits of the mark that count.
    #[must_use]
    pub const fn mask(&self) -> u32 {
        self.mask
    }

    /// Removes the table.
    ///
    /// # Errors
    /// The privilege is missing.
    pub fn remove(mut self) -> io::Result<()> {
        self.owner.transact(removal)
    }

    /// Removes a table that a killed process left; none is no error.
    ///
    /// # Errors
    /// The privilege is missing, or the process that has it lives.
    pub fn remove_leftover() -> io::Result<()> {
        match Netlink::open(NETLINK_NETFILTER)?.transact(removal) {
            // Without this message there is no such table either.
            Err(error) if is_unknown(&error) => Ok(()),
            outcome => outcome,
        }
    }
}

/// True if the kernel knows tables that belong to a process and outlive it. The transaction that asks also deletes a table
/// that is not there, so that the kernel undoes all of it.
///
/// # Errors
/// The privilege is missing.
pub fn owned_tables() -> io::Result<bool> {
    let asked = |first| {
        batch(first, |batch| {
            let mut table = batch.request().set_create().op_newtable_do(&family(INET));
            table
                .encode()
                .push_name_bytes(TRIAL_TABLE.as_bytes())
                .push_flags(TableFlags::Owner as u32 | TableFlags::Persist as u32);
            drop(table);
            let mut absent = batch.request().op_deltable_do(&family(INET));
            absent.encode().push_name_bytes(ABSENT_TABLE.as_bytes());
        })
    };
    match Netlink::open(NETLINK_NETFILTER)?.transact(asked) {
        Err(error) if is_unknown(&error) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        outcome => outcome.map(|()| true),
    }
}

/// True for the errors of kernels that do not know a flag or a message.
fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL))
}

/// A transaction that removes the table if it is there.
fn removal(first_sequence: u32) -> Vec<u8> {
    batch(first_sequence, |batch| {
        let mut table = batch.request().op_destroytable_do(&family(INET));
        table.encode().push_name_bytes(HOLD_TABLE.as_bytes());
    })
}

/// A transaction that puts the table with its one rule in place of whatever had its name.
fn creation(first_sequence: u32, mask: u32) -> Vec<u8> {
    let flags = TableFlags::Owner as u32 | TableFlags::Persist as u32;
    batch(first_sequence, |batch| {
        let inet = family(INET);
        let mut table = batch.request().op_destroytable_do(&inet);
        table.encode().push_name_bytes(HOLD_TABLE.as_bytes());
        drop(table);
        let mut table = batch.request().set_create().op_newtable_do(&inet);
        table
            .encode()
            .push_name_bytes(HOLD_TABLE.as_bytes())
            .push_flags(flags);
        drop(table);
        let mut chain = batch.request().set_create().op_newchain_do(&inet);
        chain
            .encode()
            .push_table_bytes(HOLD_TABLE.as_bytes())
            .push_name_bytes(CHAIN)
            .nested_hook()
            .push_num(OUTPUT)
            .push_priority(FILTER_PRIORITY)
            .end_nested()
            .push_policy(VerdictCode::Accept as u32)
            .push_type_bytes(b"filter");
        drop(chain);
        let mut rule = batch
            .request()
            .set_create()
            .set_append()
            .op_newrule_do(&inet);
        unmarked_is_dropped(rule.encode(), mask);
    })
}

/// `oif != lo meta mark & MASK == 0 counter drop`.
fn unmarked_is_dropped<P: Pusher>(rule: PushRuleAttrs<P>, mask: u32) {
    let expressions = rule
        .push_table_bytes(HOLD_TABLE.as_bytes())
        .push_chain_bytes(CHAIN)
        .nested_expressions();
    let expressions = loaded(expressions, MetaKeys::Oif);
    let expressions = compared(expressions, CmpOps::Neq, LOOPBACK);
    let expressions = loaded(expressions, MetaKeys::Mark)
        .nested_elem()
        .nested_data_bitwise()
        .push_sreg(REGISTER)
        .push_dreg(REGISTER)
        .push_len(4)
        .nested_mask()
        .push_value(&mask.to_ne_bytes())
        .end_nested()
        .nested_xor()
        .push_value(&[0; 4])
        .end_nested()
        .end_nested()
        .end_nested();
    compared(expressions, CmpOps::Eq, 0)
        .nested_elem()
        .nested_data_counter()
        .end_nested()
        .end_nested()
        .nested_elem()
        .nested_data_immediate()
        .push_dreg(Registers::RegVerdict as u32)
        .nested_data()
        .nested_verdict()
        .push_code(VerdictCode::Drop as u32);
}

/// Appends: load a property of the packet into the register.
fn loaded<P: Pusher>(list: PushExprListAttrs<P>, key: MetaKeys) -> PushExprListAttrs<P> {
    list.nested_elem()
        .nested_data_meta()
        .push_key(key as u32)
        .push_dreg(REGISTER)
        .end_nested()
        .end_nested()
}

/// Appends: go on if the register compares so with `value`, a number in the machine's byte order.
fn compared<P: Pusher>(
    list: PushExprListAttrs<P>,
    comparison: CmpOps,
    value: u32,
) -> PushExprListAttrs<P> {
    list.nested_elem()
        .nested_data_cmp()
        .push_sreg(REGISTER)
        .push_op(comparison as u32)
        .nested_data()
        .push_value(&value.to_ne_bytes())
        .end_nested()
        .end_nested()
        .end_nested()
}

/// A transaction: the kernel does all that `fill` asks for, or nothing.
fn batch(first_sequence: u32, fill: impl FnOnce(&mut Chained<'static>)) -> Vec<u8> {
    let mut batch = Chained::new(first_sequence);
    // The subsystem stands where other messages have their resource.
    let mut frame = Nfgenmsg::new();
    frame._res_id_be = (libc::NFNL_SUBSYS_NFTABLES as u16).to_be();
    drop(batch.request().op_batch_begin_do(&frame));
    fill(&mut batch);
    drop(batch.request().op_batch_end_do(&frame));
    batch.finalize().into_chained().into_buf()
}

fn family(number: u8) -> Nfgenmsg {
    let mut header = Nfgenmsg::new();
    header.nfgen_family = number;
    header
}
