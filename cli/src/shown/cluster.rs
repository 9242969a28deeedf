//! The cluster and its nodes.

use serde_json::{Value, json};
use shared::wire::view::{ClusterView, NodeHealth, NodeView};

use super::{layers, span, value};
use crate::render::{self, Align, Table};

fn health(node: &NodeView) -> &'static str {
    match node.health {
        NodeHealth::Alive => "alive",
        NodeHealth::Draining => "draining",
        NodeHealth::Lost => "lost",
        NodeHealth::Left => "left",
    }
}

/// Nodes as a table.
pub(crate) fn nodes(nodes: &[NodeView]) -> String {
    let (l, r) = (Align::Left, Align::Right);
    let mut table = Table::new(&[
        ("node", l),
        ("health", l),
        ("heard", r),
        ("replica", r),
        ("stage", r),
        ("layers", r),
        ("memory", r),
        ("threads", r),
        ("device", l),
        ("address", l),
    ]);
    for node in nodes {
        let (replica, stage, layers) = match node.holds {
            Some((replica, stage, first, end)) => {
                (replica.to_string(), stage.to_string(), layers(first, end))
            }
            None => ("-".into(), "-".into(), "-".into()),
        };
        table.row([
            node.name.to_string(),
            match node.risk {
                Some(_) => format!("{}, at risk", health(node)),
                None => health(node).into(),
            },
            format!("{} ago", span(node.heartbeat_age)),
            replica,
            stage,
            layers,
            match node.memory_used.0 {
                // Not told yet: a process that runs uses some.
                0 => format!("- of {}", render::bytes(node.memory.0)),
                used => format!(
                    "{} of {}",
                    render::bytes(used),
                    render::bytes(node.memory.0)
                ),
            },
            node.threads.to_string(),
            node.device.clone(),
            node.address.clone(),
        ]);
    }
    table.text()
}

/// The cluster at a glance.
pub(crate) fn glance(cluster: &ClusterView) -> String {
    let jobs: Vec<String> = cluster
        .jobs
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    let mut pairs = vec![
        (
            "cluster",
            format!("{}, up {}", cluster.name, span(cluster.uptime)),
        ),
        (
            "model",
            format!("{}, {} layers", cluster.model, cluster.layers),
        ),
        ("plan", plan(cluster)),
    ];
    if let Some((epoch, state)) = &cluster.moving {
        pairs.push(("moving", format!("to plan {epoch}: {state}")));
    }
    if let Some(lack) = &cluster.lack {
        pairs.push(("lacks", lack.clone()));
    }
    pairs.push((
        "jobs",
        if jobs.is_empty() {
            "none".into()
        } else {
            jobs.join(", ")
        },
    ));
    pairs.push(("rate", format!("{:.0} tokens/s", cluster.tokens_per_second)));
    format!("{}\n{}", render::facts(&pairs), nodes(&cluster.nodes))
}

fn plan(cluster: &ClusterView) -> String {
    let plan = &cluster.plan;
    let head = format!("{} of term {}", plan.epoch, cluster.term);
    let replicas: Vec<String> = plan
        .replicas
        .iter()
        .map(|replica| {
            let seats: Vec<String> = replica
                .seats
                .iter()
                .map(|seat| seat.node.to_string())
                .collect();
            format!("replica {} on {}", replica.number, seats.join(" -> "))
        })
        .collect();
    if replicas.is_empty() {
        return format!("{head}: no replica is placed");
    }
    let sharing = plan.sharing.iter().map(|shared| {
        let numbers: Vec<String> = shared.replicas.iter().map(ToString::to_string).collect();
        format!("; {} shared by {}", shared.job, numbers.join(", "))
    });
    format!(
        "{head}: {}{}",
        replicas.join("; "),
        sharing.collect::<String>()
    )
}

/// A node for programs.
pub(crate) fn told_node(node: &NodeView) -> Value {
    let mut told = value(node);
    told["holds"] = json!(node.holds.map(|(replica, stage, first, end)| {
        json!({ "replica": replica, "stage": stage, "first_layer": first, "end_layer": end })
    }));
    told["heartbeat_age"] = json!(node.heartbeat_age.seconds());
    told
}

/// The cluster for programs.
pub(crate) fn told(cluster: &ClusterView) -> Value {
    let mut told = value(cluster);
    told["term"] = json!(cluster.term.to_string());
    told["plan"]["epoch"] = json!(cluster.plan.epoch.to_string());
    let numbers = cluster.plan.replicas.iter().enumerate();
    for (index, replica) in numbers {
        let jobs: Vec<String> = replica.jobs.iter().map(ToString::to_string).collect();
        told["plan"]["replicas"][index]["jobs"] = json!(jobs);
    }
    for (index, shared) in cluster.plan.sharing.iter().enumerate() {
        told["plan"]["sharing"][index]["job"] = json!(shared.job.to_string());
    }
    let moving = cluster.moving.as_ref();
    told["moving"] = json!(
        moving.map(|(epoch, state)| { json!({ "epoch": epoch.to_string(), "state": state }) })
    );
    let jobs = cluster
        .jobs
        .iter()
        .map(|(state, count)| (state.to_string(), json!(count)));
    told["jobs"] = Value::Object(jobs.collect());
    told["nodes"] = cluster.nodes.iter().map(told_node).collect();
    told["uptime"] = json!(cluster.uptime.seconds());
    told["clock"] = json!(cluster.clock.seconds());
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shown::samples;

    #[test]
    fn a_glance_has_plan_jobs_and_nodes() {
        let text = glance(&samples::cluster());
        let expected = "\
cluster  local, up 60 s
model    tiny, 4 layers
plan     e2 of term t1: replica 0 on n1 -> n2
moving   to plan e3: preparing
jobs     1 running, 2 queued
rate     250 tokens/s

node  health      heard  replica  stage  layers              memory  threads  device  address
n1    alive   0.5 s ago        0      0    0..2  1.0 MiB of 2.0 MiB        1  cpu     127.0.0.1:1
n2    lost     90 s ago        0      1    2..4  1.0 MiB of 2.0 MiB        1  cpu     127.0.0.1:2
n3    alive   0.5 s ago        -      -       -  1.0 MiB of 2.0 MiB        1  cpu     127.0.0.1:3
";
        assert_eq!(text, expected, "{text}");
    }

    #[test]
    fn programs_read_names_for_numbers() {
        let told = told(&samples::cluster());
        assert_eq!(told["term"], "t1");
        assert_eq!(told["plan"]["epoch"], "e2");
        assert_eq!(told["plan"]["replicas"][0]["jobs"][0], "j3");
        assert_eq!(told["moving"]["state"], "preparing");
        assert_eq!(told["jobs"]["queued"], 2);
        assert_eq!(told["nodes"][1]["holds"]["first_layer"], 2);
        assert_eq!(told["uptime"], 60.0);
    }
}
