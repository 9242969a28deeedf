//! `spotmux drain`, `migrate`: work taken off nodes.

use serde_json::json;
use shared::ids::{EventNumber, NodeName};
use shared::wire::request::Request;
use shared::wire::view::ClusterView;

use crate::args::{DrainArgs, MigrateArgs};
use crate::desk::{Desk, wait};
use crate::exit::{Exit, Failure};

/// Takes work off a node, or gives it back.
pub(crate) fn drain(args: &DrainArgs, desk: &Desk<'_>) -> Result<Exit, Failure> {
    let node = &args.node;
    if !args.undo {
        let question = match args.force {
            false => format!("Drain node {node}? Its stage moves to another node."),
            true => format!(
                "Drain node {node}, even where its stage has no other place? Jobs are made durable, and wait then."
            ),
        };
        desk.agreed(args.consent, &question)?;
    }
    let request = Request::Drain {
        node: node.clone(),
        undo: args.undo,
        force: args.force,
    };
    order(desk, &request, args.wait, node, &|_, _| Ok(()))?;
    let (state, text) = match (args.undo, args.wait) {
        (true, _) => ("undrained", format!("node {node} may have work again")),
        (false, true) => ("empty", format!("node {node} holds nothing")),
        (false, false) => ("draining", format!("node {node} is being drained")),
    };
    desk.output
        .result(&json!({ "node": node, "state": state }), &text)?;
    let mut next = vec!["spotmux nodes".to_owned()];
    if !args.undo {
        next.push(format!("spotmux drain {node} --undo"));
    }
    desk.output.next(&next);
    Ok(Exit::Done)
}

/// Moves the stage of a node.
pub(crate) fn migrate(args: &MigrateArgs, desk: &Desk<'_>) -> Result<Exit, Failure> {
    let node = &args.node;
    let target = args
        .to
        .as_ref()
        .map_or_else(|| "another node".into(), |to| format!("node {to}"));
    let question = format!("Move the stage of node {node} to {target}?");
    desk.agreed(args.consent, &question)?;
    let request = Request::Migrate {
        from: node.clone(),
        to: args.to.clone(),
    };
    order(desk, &request, args.wait, node, &|status, after| {
        called_off(desk, status, after)
    })?;
    let (state, text) = if args.wait {
        ("moved", format!("the stage of node {node} has moved"))
    } else {
        (
            "moving",
            format!("the stage of node {node} is moving to {target}"),
        )
    };
    desk.output
        .result(&json!({ "node": node, "state": state }), &text)?;
    desk.output
        .next(&["spotmux status".into(), "spotmux events -f".into()]);
    Ok(Exit::Done)
}

/// A move that was called off does not come again, and leaves the stage where it is.
fn called_off(desk: &Desk<'_>, status: &ClusterView, after: EventNumber) -> Result<(), Failure> {
    if status.moving.is_some() {
        return Ok(());
    }
    let mut why = None;
    wait::so_far(desk, None, after, &mut |event| {
        if event.kind == "migration_called_off" {
            why = Some(event.message.clone());
        }
        Ok(())
    })?;
    why.map_or(Ok(()), |why| {
        let message = format!("the move was called off, and the stage stays where it is: {why}");
        Err(Failure::new(Exit::Conflict, message).hint("spotmux nodes shows who could take it"))
    })
}

/// Asks, and waits until the node holds nothing and nothing moves; `vain` says why that will not come, of a cluster where the
/// node still holds something.
fn order(
    desk: &Desk<'_>,
    request: &Request,
    waits: bool,
    node: &NodeName,
    vain: &dyn Fn(&ClusterView, EventNumber) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let after = if waits {
        wait::newest(desk)?
    } else {
        Default::default()
    };
    desk.done(request)?;
    if !waits {
        return Ok(());
    }
    wait::until(desk, after, || {
        let status = desk.status()?;
        let held = status
            .nodes
            .iter()
            .any(|seen| seen.name == *node && seen.holds.is_some());
        if held {
            vain(&status, after)?;
        }
        Ok(!held && status.moving.is_none())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::wire::request::Reply;
    use shared::wire::view::Level;

    use super::*;
    use crate::args::{ClusterArgs, Consent};
    use crate::control::scripted::Scripted;
    use crate::desk::tests::at;
    use crate::shown::samples;

    fn args(undo: bool, wait: bool) -> DrainArgs {
        DrainArgs {
            node: NodeName::new("n1").unwrap(),
            undo,
            force: false,
            wait,
            consent: Consent::default(),
            cluster: ClusterArgs::default(),
        }
    }

    #[test]
    fn a_wait_ends_when_the_node_holds_nothing_and_nothing_moves() {
        let control = Scripted::new(|request, before| match request {
            Request::Events { .. } => {
                let event = |number| samples::event(number, Level::Info, "step", "");
                (8..13)
                    .map(|number| Reply::Events(vec![event(number)]))
                    .collect()
            }
            Request::Drain { .. } => vec![Reply::Done],
            Request::Status => {
                let mut cluster = samples::cluster();
                if before > 3 {
                    cluster.nodes[0].holds = None;
                }
                if before > 4 {
                    cluster.moving = None;
                }
                vec![Reply::Cluster(cluster)]
            }
            other => panic!("{other:?}"),
        });
        let exit = at(&control, Some(true), |desk| drain(&args(false, true), desk));
        assert_eq!(exit.unwrap(), Exit::Done);
        let asked = control.asked.borrow();
        let looks = asked.iter().filter(|request| **request == Request::Status);
        assert_eq!(looks.count(), 4, "{asked:?}");
    }

    #[test]
    fn a_wait_for_a_move_that_is_called_off_ends_with_its_reason() {
        let control = Scripted::new(|request, before| match request {
            Request::Events { follow, .. } => {
                let off = "migration_called_off";
                let event = samples::event(8, Level::Warn, off, "plan e3 does not come: no room");
                let events = Reply::Events(vec![event]);
                if *follow {
                    vec![events]
                } else {
                    vec![events, Reply::Done]
                }
            }
            Request::Migrate { .. } => vec![Reply::Done],
            Request::Status => {
                let mut cluster = samples::cluster();
                if before > 2 {
                    cluster.moving = None;
                }
                vec![Reply::Cluster(cluster)]
            }
            other => panic!("{other:?}"),
        });
        let moves = MigrateArgs {
            node: NodeName::new("n1").unwrap(),
            to: None,
            wait: true,
            consent: Consent::default(),
            cluster: ClusterArgs::default(),
        };
        let ended = at(&control, Some(true), |desk| migrate(&moves, desk)).unwrap_err();
        assert_eq!(ended.exit, Exit::Conflict);
        assert!(ended.message().contains("no room"), "{}", ended.message());
    }

    #[test]
    fn giving_back_does_not_ask_and_taking_does() {
        let control = Scripted::new(|_, _| vec![Reply::Done]);
        at(&control, None, |desk| drain(&args(true, false), desk)).unwrap();
        let refused = at(&control, Some(false), |desk| {
            drain(&args(false, false), desk)
        });
        assert_eq!(refused.unwrap_err().exit, Exit::Interrupted);
        let moves = MigrateArgs {
            node: NodeName::new("n1").unwrap(),
            to: None,
            wait: false,
            consent: Consent::default(),
            cluster: ClusterArgs::default(),
        };
        let refused = at(&control, Some(false), |desk| migrate(&moves, desk));
        assert_eq!(refused.unwrap_err().exit, Exit::Interrupted);
        assert_eq!(control.asked.borrow().len(), 1);
    }
}
