//! What cannot be, over all keys of a configuration; all of it at once.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use super::schema::{ClusterConfig, Stages};
use super::{Origin, Problem, places};

/// Where each key was said; what nobody said is not in it.
pub type Origins = BTreeMap<String, Origin>;

/// What is known of the backbone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelFacts {
    /// Its layers.
    pub layers: u64,
    /// Bytes that all its layers take in memory, embedding and head included.
    pub bytes: u64,
}

/// Lists everything that cannot be; with `model`, also against the backbone.
#[must_use]
pub fn problems(
    config: &ClusterConfig,
    origins: &Origins,
    model: Option<ModelFacts>,
) -> Vec<Problem> {
    let mut found = Found {
        origins,
        problems: Vec::new(),
    };
    names(config, &mut found);
    addresses(config, &mut found);
    metrics(config, &mut found);
    times(config, &mut found);
    stages(config, model, &mut found);
    memory(config, model, &mut found);
    found.problems
}

struct Found<'a> {
    origins: &'a Origins,
    problems: Vec<Problem>,
}

impl Found<'_> {
    /// Where a key was said; for one that was not, its node's name tells the place.
    fn origin(&self, key: &str) -> Origin {
        let node = key
            .split_once("].")
            .map(|(node, _)| format!("{node}].name"));
        let named = node.and_then(|name| self.origins.get(&name));
        let found = self.origins.get(key).or(named);
        found.cloned().unwrap_or(Origin::Default)
    }

    fn add(&mut self, key: impl Into<String>, message: String) {
        let key = key.into();
        self.problems.push(Problem {
            origin: self.origin(&key),
            key,
            message,
        });
    }
}

fn names(config: &ClusterConfig, found: &mut Found<'_>) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (index, node) in config.node.iter().enumerate() {
        // Names are folders too, and some file systems know no case.
        let plain = node.name.as_str().to_ascii_lowercase();
        if places::ROLES.contains(&plain.as_str()) {
            let message = format!(
                "{:?} is the name of a process that is no node, and its log and process id have it already: choose another, \
                 such as n{}",
                node.name.as_str(),
                index + 1
            );
            found.add(format!("node[{index}].name"), message);
        } else if let Some(first) = seen.get(&plain) {
            let message = format!(
                "{:?} is the name of node[{first}] too: give each node its own",
                node.name.as_str()
            );
            found.add(format!("node[{index}].name"), message);
        } else {
            seen.insert(plain, index);
        }
    }
}

fn addresses(config: &ClusterConfig, found: &mut Found<'_>) {
    let mut taken: Vec<(String, SocketAddr)> =
        vec![("coordinator.listen".into(), config.coordinator.listen)];
    for (index, node) in config.nodes().iter().enumerate() {
        let key = format!("node[{index}].listen");
        let other = taken
            .iter()
            .find(|(_, address)| collide(*address, node.listen));
        if let Some((other, _)) = other {
            let place = found.origin(other);
            let message = format!(
                "{} is taken by {other} ({place}): give each its own port",
                node.listen
            );
            found.add(key.clone(), message);
        }
        taken.push((key, node.listen));
    }
    for (key, address) in [
        ("coordinator.listen", config.coordinator.listen),
        ("coordinator.metrics", config.coordinator.metrics),
    ] {
        let metrics = key == "coordinator.metrics";
        if address.port() == 0 && (!metrics || config.telemetry.metrics) {
            let message = format!("{address} has port 0: others must know the port, so choose one");
            found.add(key, message);
        }
    }
}

/// Where metrics are read must be free too; ports that follow from `listen` are told of there.
fn metrics(config: &ClusterConfig, found: &mut Found<'_>) {
    if !config.telemetry.metrics {
        return;
    }
    let mut taken: Vec<(String, SocketAddr, bool)> = vec![(
        "coordinator.metrics".into(),
        config.coordinator.metrics,
        true,
    )];
    for (index, node) in config.nodes().iter().enumerate() {
        let key = format!("node[{index}].metrics");
        let said = config.node[index].metrics.is_some();
        let other = taken
            .iter()
            .find(|(_, address, other)| (said || *other) && collide(*address, node.metrics));
        if let Some((other, ..)) = other {
            let message = format!(
                "{} is taken by {other} ({}): give each its own port",
                node.metrics,
                found.origin(other)
            );
            found.add(key.clone(), message);
        }
        taken.push((key, node.metrics, said));
    }
}

/// Whether two sockets of one protocol cannot both be opened on one machine.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.port() != 0 && (one.ip() == other.ip() || any)
}

fn times(config: &ClusterConfig, found: &mut Found<'_>) {
    let (every, bound) = (
        config.coordinator.heartbeat_ms,
        config.coordinator.heartbeat_bound_ms,
    );
    if bound < every.saturating_mul(2) {
        let message = format!(
            "{bound} ms is less than two heartbeats of {every} ms: one late message would lose a node; \
             use at least {} ms",
            every.saturating_mul(2)
        );
        found.add("coordinator.heartbeat_bound_ms", message);
    }
}

fn stages(config: &ClusterConfig, model: Option<ModelFacts>, found: &mut Found<'_>) {
    let nodes = config.node.len() as u64;
    let stages = match config.plan.stages {
        Stages::Count(count) => count,
        Stages::All => (nodes / config.plan.replicas.max(1)).max(1),
    };
    let wanted = stages.saturating_mul(config.plan.replicas);
    // The machines of a market are not listed.
    if nodes > 0 && !config.market.runs() && wanted > nodes {
        let (what, key) = if stages > nodes {
            (format!("{stages} stages"), "plan.stages")
        } else {
            (
                format!("{} replicas of {stages} stages", config.plan.replicas),
                "plan.replicas",
            )
        };
        let message = format!(
            "{what} need {wanted} nodes, and {nodes} are listed: add [[node]] tables, or lower it"
        );
        found.add(key, message);
    }
    if let Err(problem) = config.plan.weights() {
        found.add("plan.tenants", problem);
    }
    if let Some(problem) = model.and_then(|model| config.plan.recompute.problem(model.layers)) {
        found.add("plan.recompute", problem);
    }
    if let Some(model) = model
        && stages > model.layers
    {
        let message = format!(
            "{stages} stages for {} layers: a stage holds at least one layer, so use at most {}",
            model.layers, model.layers
        );
        found.add("plan.stages", message);
    }
}

fn memory(config: &ClusterConfig, model: Option<ModelFacts>, found: &mut Found<'_>) {
    let budget = config.plan.activation_budget_mib;
    let mut offered = Vec::new();
    for (index, node) in config.nodes().iter().enumerate() {
        let own = config.node[index].memory_mib.is_some();
        let key = match own {
            true => format!("node[{index}].memory_mib"),
            false => "gpu_actor.memory_mib".into(),
        };
        let memory = node.memory.0 >> 20;
        offered.push(memory.saturating_sub(budget) << 20);
        let told = found.problems.iter().any(|problem| problem.key == key);
        if memory <= budget && !told {
            let message = format!(
                "{memory} MiB of node {} leave nothing beside plan.activation_budget_mib = {budget}: \
                 offer more, or lower the budget (plan.recompute makes less enough)",
                node.name
            );
            found.add(key, message);
        }
    }
    let Some(model) = model else {
        return;
    };
    if offered.is_empty() {
        return;
    }
    // The roomiest nodes are taken; a replica's layers must fit in them together.
    offered.sort_unstable_by(|a, b| b.cmp(a));
    let seats = match config.plan.stages {
        Stages::Count(count) => usize::try_from(count).unwrap_or(usize::MAX),
        Stages::All => offered.len(),
    };
    let room: u64 = offered.iter().take(seats).sum();
    if room > 0 && model.bytes > room {
        let message = format!(
            "the layers need {} MiB, and the nodes of a replica offer {} MiB beside activations: \
             offer more memory, use more stages, or a smaller format",
            model.bytes.div_ceil(1 << 20),
            room >> 20
        );
        found.add("gpu_actor.memory_mib", message);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn told(text: &str, model: Option<ModelFacts>) -> Vec<String> {
        let config: ClusterConfig = toml::from_str(text).unwrap();
        let layer = crate::config::layer::of_file("c.toml", text);
        assert_eq!(layer.problems, []);
        let origins = layer.said.into_iter().map(|said| (said.key, said.origin));
        let found = problems(&config, &origins.collect(), model);
        found.iter().map(ToString::to_string).collect()
    }

    const TWO: &str = "\
[[node]]
name = 'a'
listen = '127.0.0.1:1'
[[node]]
name = 'b'
listen = '127.0.0.1:2'
";

    #[test]
    fn what_can_be_has_no_problem() {
        assert_eq!(told(TWO, None), [""; 0]);
        assert_eq!(told("", None), [""; 0]);
        let all = format!("[plan]\nstages = 'all'\nreplicas = 2\n{TWO}");
        assert_eq!(told(&all, None), [""; 0]);
    }

    #[test]
    fn a_node_is_not_named_as_another_process_is() {
        let text = "\
[[node]]
name = 'Up'
[[node]]
name = 'coordinator'
listen = '127.0.0.1:3'
[[node]]
name = 'market-actors'
listen = '127.0.0.1:4'
";
        let found = told(text, None);
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(found[0].starts_with("c.toml:2: node[0].name: \"Up\" is the name of a process"));
        assert!(found[1].starts_with("c.toml:4: node[1].name: \"coordinator\""));
    }

    #[test]
    fn contradictions_are_all_told_with_key_value_and_remedy() {
        let text = "\
[coordinator]
listen = '0.0.0.0:2'
heartbeat_ms = 1000
heartbeat_bound_ms = 1500
[plan]
stages = 3
activation_budget_mib = 2000
[[node]]
name = 'a'
[[node]]
name = 'A'
listen = '127.0.0.1:2'
memory_mib = 4000
";
        let starts = [
            "c.toml:11: node[1].name: \"A\" is the name of node[0] too",
            "c.toml:12: node[1].listen: 127.0.0.1:2 is taken by coordinator.listen (c.toml:2)",
            "c.toml:4: coordinator.heartbeat_bound_ms: 1500 ms is less than two heartbeats of 1000 ms",
            "c.toml:6: plan.stages: 3 stages need 3 nodes, and 2 are listed",
            "default: gpu_actor.memory_mib: 1024 MiB of node a leave nothing",
        ];
        let found = told(text, None);
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(
                found.starts_with(start),
                "{found} does not start with {start}"
            );
        }
        let same = told(&TWO.replace("'127.0.0.1:2'", "'127.0.0.1:1'"), None);
        assert!(
            same[0].contains("taken by node[0].listen (c.toml:3)"),
            "{same:?}"
        );
        let metrics = told(&TWO.replace("'127.0.0.1:2'", "'127.0.0.1:7421'"), None);
        assert!(
            metrics[0].contains("node[1].metrics: 127.0.0.1:7421 is taken by coordinator.metrics"),
            "{metrics:?}"
        );
        let off = format!("[telemetry]\nmetrics = false\n{TWO}metrics = '127.0.0.1:1'\n");
        assert_eq!(told(&off, None), [""; 0]);
        let zero = told("[coordinator]\nlisten = '127.0.0.1:0'", None);
        assert!(zero[0].contains("port 0"), "{zero:?}");
        let copies = told(&format!("[plan]\nreplicas = 3\n{TWO}"), None);
        assert!(
            copies[0].contains("plan.replicas: 3 replicas of 1 stages"),
            "{copies:?}"
        );
    }

    #[test]
    fn a_backbone_must_fit() {
        let model = |layers, mib: u64| {
            let bytes = mib << 20;
            Some(ModelFacts { layers, bytes })
        };
        let text = format!("[plan]\nstages = 2\n{TWO}");
        assert_eq!(told(&text, model(2, 1536)), [""; 0]);
        let again = text.replace("[plan]", "[plan]\nrecompute = 3");
        assert_eq!(told(&again, model(3, 1)), [""; 0]);
        let many = told(&again, model(2, 1));
        assert!(
            many[0]
                .starts_with("c.toml:2: plan.recompute: 3 layers recompute, and the model has 2"),
            "{many:?}"
        );
        let few = told(&text, model(1, 1));
        assert!(few[0].contains("2 stages for 1 layers"), "{few:?}");
        let much = told(&text, model(2, 1537));
        assert!(
            much[0].contains("need 1537 MiB, and the nodes of a replica offer 1536 MiB"),
            "{much:?}"
        );
    }
}
