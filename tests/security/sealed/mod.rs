//! Flows that are sealed beside the tunnel (SLE), and a middle box that means ill: whatever it does, the two applications get what
//! the other has said, or a reset; and nothing that it repeats is dialled for.

mod faults;
mod middle;
mod place;

use std::io::ErrorKind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bentpipe_lab::workload::MARKER;
use bentpipe_testbed::peer::payload;

use faults::{Expected, Fault};
use middle::{Act, Cut, End, Name, Plan, Recorded, Way};
use place::{Counted, Heard, Scene};

/// Length of what each application says, in bytes: some dozens of records.
const LENGTH: usize = 60_000;

/// Shows the daemons' logs if `case` fails.
fn with_logs(scene: &mut Scene, case: impl FnOnce(&mut Scene) -> Result<()>) {
    let result = case(scene);
    assert!(
        result.is_ok(),
        "{:#}\n{}",
        result.unwrap_err(),
        scene.logs()
    );
}

/// Has the applications talk over an outer connection that nobody disturbs, and returns what was recorded of that.
fn talk_undisturbed(scene: &Scene, way: &Way, words: &[u8]) -> Result<Recorded> {
    let plan = Plan {
        up: way.clone(),
        down: way.clone(),
    };
    let connections = scene.middle.count();
    let heard = scene.talk(plan, words)?;
    let Heard::Bytes(bytes, Ok(())) = heard else {
        anyhow::bail!("{heard:?} instead of an answer");
    };
    ensure!(bytes == words, "an answer of {} other bytes", bytes.len());
    ensure!(scene.middle.count() == connections + 1, "not sealed");
    scene.wait_until_closed()?;
    scene.recorded()
}

#[test]
fn a_box_that_cuts_and_merges_changes_nothing() {
    let mut scene = Scene::start().expect("daemons");
    with_logs(&mut scene, |scene| {
        scene.fresh_client()?;
        let words = payload(LENGTH);
        let cuts = [
            Cut::AsTheyCome,
            Cut::Pieces(1),
            Cut::Pieces(7),
            Cut::Pieces(1000),
            Cut::Merged(Duration::from_millis(30)),
        ];
        for cut in cuts {
            let way = Way { cut, change: None };
            let recorded = talk_undisturbed(scene, &way, &words)?;
            for side in [recorded.up, recorded.down] {
                let bytes = side.concat();
                let readable = bytes.windows(MARKER.len()).find(|part| *part == MARKER);
                ensure!(readable.is_none(), "content can be read");
            }
        }
        let counted = scene.counted()?;
        ensure!(
            counted.broken == 0 && counted.refused_in_all() == 0,
            "{counted:?}"
        );
        Ok(())
    });
}

#[test]
fn a_box_that_holds_bytes_up_delays_them_alone() {
    const HELD: Duration = Duration::from_secs(3);
    let mut scene = Scene::start().expect("daemons");
    with_logs(&mut scene, |scene| {
        scene.fresh_client()?;
        for held in [Name::Preface, Name::Record(0), Name::Record(3)] {
            let way = Way {
                change: Some(Arc::new(move |unit| {
                    if unit.name == held {
                        thread::sleep(HELD);
                    }
                    Act::Pass
                })),
                ..Way::default()
            };
            talk_undisturbed(scene, &way, &payload(LENGTH))?;
        }
        Ok(())
    });
}

#[test]
fn a_box_that_keeps_answers_back_holds_up_one_flow_and_not_all() {
    let mut scene = Scene::start().expect("daemons");
    with_logs(&mut scene, |scene| {
        scene.fresh_client()?;
        let kept = Plan {
            down: Way {
                change: Some(Arc::new(|_| Act::Send(Vec::new()))),
                ..Way::default()
            },
            ..Plan::default()
        };
        thread::scope(|scope| {
            let words = payload(LENGTH);
            scope.spawn(|| scene.talk(kept, b"is anybody there?"));
            scene.wait_until_said("no answer for 15 s; they go through the tunnel")?;
            let connections = scene.middle.count();
            let heard = scene.talk(Plan::default(), &words)?;
            let through = matches!(heard, Heard::Bytes(bytes, Ok(())) if bytes == words);
            ensure!(
                through && scene.middle.count() == connections,
                "still sealed"
            );
            Ok(())
        })
    });
}

#[test]
fn whatever_is_done_to_an_outer_connection_both_applications_notice() {
    let faults = faults::all();
    // Some wait for seconds, so several places share them.
    let places = 4;
    thread::scope(|scope| {
        for place in 0..places {
            let mine: Vec<&Fault> = faults.iter().skip(place).step_by(places).collect();
            scope.spawn(move || {
                let mut scene = Scene::start().expect("daemons");
                for fault in mine {
                    with_logs(&mut scene, |scene| endure(scene, fault));
                }
            });
        }
    });
}

/// Has the applications talk while the middle box does its worst.
fn endure(scene: &mut Scene, fault: &Fault) -> Result<()> {
    let words = payload(LENGTH);
    scene.restore_trust()?;
    let spare = match fault.is_splice() {
        true => talk_undisturbed(scene, &Way::default(), &words)?,
        false => Recorded::default(),
    };
    let before = scene.counted()?;
    let (dialled, connections) = (scene.dialled(), scene.middle.count());
    let heard = scene.talk(fault.plan(&spare), &words)?;
    ensure!(scene.middle.count() == connections + 1, "not sealed");
    let judged = judge(scene, fault, &words, &heard).and_then(|()| match &fault.expected {
        Expected::NotDialled(causes) => {
            let more = |now: &Counted| now.refused(causes) == before.refused(causes) + 1;
            scene.wait_until(more)?;
            ensure!(scene.dialled() == dialled, "it was dialled for");
            Ok(())
        }
        Expected::Broken => scene.wait_until(|now| now.broken > before.broken),
        Expected::Unheard => {
            ensure!(scene.dialled() == dialled, "it was dialled for");
            Ok(())
        }
        Expected::Late => Ok(()),
    });
    judged.with_context(|| format!("{}: {}", fault.name(), heard.brief()))
}

/// Fails if an application has heard what was not said, or takes less for all.
fn judge(scene: &Scene, fault: &Fault, words: &[u8], heard: &Heard) -> Result<()> {
    match heard {
        Heard::Refused => {}
        Heard::Bytes(bytes, end) => {
            ensure!(words.starts_with(bytes), "other bytes than were said");
            match end {
                Ok(()) => {
                    ensure!(bytes == words, "a clean end, too soon");
                    let late = matches!(fault.expected, Expected::Late);
                    ensure!(late, "nobody noticed");
                }
                Err(error) => {
                    ensure!(error.kind() == ErrorKind::ConnectionReset, "no reset");
                }
            }
        }
    }
    for arrived in scene.arrived() {
        ensure!(
            words.starts_with(&arrived.bytes),
            "the destination has other bytes"
        );
        let all = arrived.bytes == words || !arrived.whole;
        ensure!(all, "the destination has a clean end, too soon");
    }
    Ok(())
}

#[test]
fn what_is_repeated_is_not_dialled_for() {
    let mut scene = Scene::start().expect("daemons");
    with_logs(&mut scene, |scene| {
        scene.fresh_client()?;
        let Recorded { up, down } = talk_undisturbed(scene, &Way::default(), &payload(LENGTH))?;
        let mut renumbered = up.concat();
        renumbered[15] ^= 0x40;
        let repeated = [
            (up.concat(), "replayed"),
            (up[..2].concat(), "replayed"),
            (renumbered, "record"),
            (down.concat(), "preface"),
            ([up[0].clone(), down.concat()].concat(), "replayed"),
        ];
        for (bytes, cause) in repeated {
            expect_refusal(scene, &bytes, cause)?;
        }
        expect_one_of_copies(scene)?;
        // Its tunnel is gone, and another has begun.
        scene.fresh_client()?;
        expect_refusal(scene, &up.concat(), "association")?;
        scene.stop_client();
        expect_refusal(scene, &up.concat(), "association")
    });
}

/// The server refuses who says `bytes`, counts that, and dials nobody.
fn expect_refusal(scene: &Scene, bytes: &[u8], cause: &str) -> Result<()> {
    let (before, dialled) = (scene.refused(cause)?, scene.dialled());
    let heard = scene.say(bytes)?;
    ensure!(heard.is_empty(), "{} bytes of an answer", heard.len());
    scene.wait_until_refused(cause, before + 1)?;
    ensure!(scene.dialled() == dialled, "it was dialled for: {cause}");
    Ok(())
}

/// Of copies of a connection that has not reached the server itself, it takes one.
fn expect_one_of_copies(scene: &Scene) -> Result<()> {
    const COPIES: u64 = 8;
    let up = Way {
        change: Some(Arc::new(|unit| match unit.name {
            Name::Preface => Act::Send(Vec::new()),
            _ => Act::End(Vec::new(), End::Both),
        })),
        ..Way::default()
    };
    let plan = Plan {
        up,
        ..Plan::default()
    };
    let heard = scene.talk(plan, b"words")?;
    ensure!(!matches!(heard, Heard::Bytes(_, Ok(()))), "{heard:?}");
    let copy = scene.recorded()?.up.concat();
    let (before, dialled) = (scene.refused("replayed")?, scene.dialled());
    let begun: Vec<_> = thread::scope(|scope| {
        let copies = (0..COPIES).map(|_| scope.spawn(|| scene.begin(&copy)));
        let copies: Vec<_> = copies.collect();
        copies.into_iter().map(|copy| copy.join()).collect()
    });
    scene.wait_until_refused("replayed", before + COPIES - 1)?;
    scene.wait(|| Ok((scene.dialled() == dialled).then(|| "it was not dialled for".to_owned())))?;
    ensure!(scene.dialled() == dialled + 1, "it was dialled for twice");
    drop(begun);
    Ok(())
}
