//! What devices and links did, in the trace format of Chrome: a process is a node, a thread is a lane, an arrow is what
//! was sent.
//!
//! - `TL-1` Spans of one lane of a node do not overlap; where they do, that is said.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use shared::ids::NodeName;
use shared::wire::view::SpanView;

/// How lanes of what leaves a stage begin.
const OUT: &str = "link out";
/// How lanes of what reaches a stage begin.
const IN: &str = "link in";

/// Spans of one lane that overlap, a sentence each.
pub(crate) fn overlaps(spans: &[SpanView]) -> Vec<String> {
    let mut lanes: BTreeMap<(&NodeName, &str), Vec<&SpanView>> = BTreeMap::new();
    for span in spans {
        lanes
            .entry((&span.node, &span.lane))
            .or_default()
            .push(span);
    }
    let mut found = Vec::new();
    for ((node, lane), mut spans) in lanes {
        spans.sort_by_key(|span| span.start);
        for pair in spans.windows(2) {
            let [first, second] = pair else { continue };
            let end = first.start.plus(first.duration);
            if second.start < end {
                found.push(format!(
                    "lane {lane} of node {node}: {} begins {} before {} ends",
                    second.name,
                    end.since(second.start),
                    first.name
                ));
            }
        }
    }
    found
}

/// The spans as a document that Perfetto opens; times are from the first start.
pub(crate) fn chrome(spans: &[SpanView]) -> Value {
    let zero = spans
        .iter()
        .map(|span| span.start)
        .min()
        .unwrap_or_default();
    let nodes: BTreeMap<&NodeName, u32> =
        spans.iter().map(|span| (&span.node, span.stage)).collect();
    let lanes: BTreeSet<&str> = spans.iter().map(|span| span.lane.as_str()).collect();
    let process = |node: &NodeName| 1 + nodes.keys().position(|known| *known == node).unwrap_or(0);
    let thread = |lane: &str| 1 + lanes.iter().position(|known| *known == lane).unwrap_or(0);
    let mut events = Vec::new();
    for (node, stage) in &nodes {
        let name = json!({ "name": format!("{node}, stage {stage}") });
        events
            .push(json!({ "ph": "M", "name": "process_name", "pid": process(node), "args": name }));
        let order = json!({ "sort_index": stage });
        events.push(
            json!({ "ph": "M", "name": "process_sort_index", "pid": process(node), "args": order }),
        );
        for lane in &lanes {
            let (pid, tid) = (process(node), thread(lane));
            let name = json!({ "name": lane });
            events.push(
                json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": name }),
            );
        }
    }
    for span in spans {
        let jobs: Vec<String> = span
            .jobs
            .iter()
            .map(|(job, step)| format!("{job} step {step}"))
            .collect();
        events.push(json!({
            "ph": "X",
            "name": span.name,
            "cat": span.lane,
            "pid": process(&span.node),
            "tid": thread(&span.lane),
            "ts": span.start.since(zero).0,
            "dur": span.duration.0,
            "args": { "micro_batch": span.micro_batch, "jobs": jobs, "bytes": span.bytes.0 },
        }));
    }
    for (number, (from, to)) in arrows(spans).into_iter().enumerate() {
        for (phase, span, at) in [("s", from, from.start), ("f", to, to.start)] {
            events.push(json!({
                "ph": phase,
                "bp": "e",
                "id": number,
                "name": "chunk",
                "cat": "link",
                "pid": process(&span.node),
                "tid": thread(&span.lane),
                "ts": at.since(zero).0,
            }));
        }
    }
    json!({ "displayTimeUnit": "ms", "traceEvents": events })
}

/// What was sent, each with its receive: the first one after it of the same micro-batch on a neighbouring stage.
fn arrows(spans: &[SpanView]) -> Vec<(&SpanView, &SpanView)> {
    let mut sends: Vec<&SpanView> = spans
        .iter()
        .filter(|span| span.lane.starts_with(OUT))
        .collect();
    let mut receives: Vec<&SpanView> = spans
        .iter()
        .filter(|span| span.lane.starts_with(IN))
        .collect();
    sends.sort_by_key(|span| span.start);
    receives.sort_by_key(|span| span.start);
    let mut arrows = Vec::new();
    for send in sends {
        let fits = |receive: &&SpanView| {
            receive.micro_batch == send.micro_batch
                && receive.micro_batch.is_some()
                && receive.stage.abs_diff(send.stage) == 1
                && receive.start.plus(receive.duration) >= send.start
        };
        if let Some(index) = receives.iter().position(fits) {
            arrows.push((send, receives.remove(index)));
        }
    }
    arrows
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::ids::JobId;
    use shared::units::{Bytes, Micros};

    use super::*;

    pub(crate) fn span(
        node: &str,
        stage: u32,
        lane: &str,
        name: &str,
        micro_batch: u64,
        start: u64,
        duration: u64,
    ) -> SpanView {
        SpanView {
            node: NodeName::new(node).unwrap(),
            stage,
            lane: lane.into(),
            name: name.into(),
            micro_batch: Some(micro_batch),
            jobs: vec![(JobId(3), 4)],
            start: Micros(1000 + start),
            duration: Micros(duration),
            bytes: Bytes(64),
        }
    }

    fn step() -> Vec<SpanView> {
        vec![
            span("n1", 0, "device", "forward", 0, 0, 10),
            span("n1", 0, "link out 1", "send", 0, 10, 5),
            span("n2", 1, "link in 1", "receive", 0, 12, 5),
            span("n2", 1, "device", "backward", 0, 17, 10),
            span("n2", 1, "link out 1", "send", 0, 27, 5),
            span("n1", 0, "link in 1", "receive", 0, 29, 5),
        ]
    }

    #[test]
    fn tl_1_overlaps_are_said() {
        assert_eq!(overlaps(&step()), [""; 0]);
        let mut spans = step();
        spans.push(span("n1", 0, "device", "apply", 0, 9, 3));
        assert_eq!(
            overlaps(&spans),
            ["lane device of node n1: apply begins 1 us before forward ends"]
        );
    }

    #[test]
    fn every_send_has_an_arrow_to_its_receive() {
        let spans = step();
        let found: Vec<(String, u32, String, u32)> = arrows(&spans)
            .into_iter()
            .map(|(a, b)| (a.name.clone(), a.stage, b.name.clone(), b.stage))
            .collect();
        let expected = [("send", 0, "receive", 1), ("send", 1, "receive", 0)];
        assert_eq!(
            found,
            expected.map(|(a, s, b, t)| (a.into(), s, b.into(), t))
        );
    }

    #[test]
    fn a_document_has_times_from_the_first_start() {
        let document = chrome(&step());
        let events = document["traceEvents"].as_array().unwrap();
        let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
        assert_eq!((of("X"), of("s"), of("f"), of("M")), (6, 2, 2, 10));
        let first = events.iter().find(|event| event["ph"] == "X").unwrap();
        assert_eq!((&first["ts"], &first["dur"]), (&json!(0), &json!(10)));
        assert_eq!(first["args"]["jobs"][0], "j3 step 4");
        let lanes: BTreeSet<(u64, u64)> = events
            .iter()
            .filter(|event| event["ph"] == "X")
            .map(|event| {
                (
                    event["pid"].as_u64().unwrap(),
                    event["tid"].as_u64().unwrap(),
                )
            })
            .collect();
        assert_eq!(lanes.len(), 6);
    }
}
