//! Runs simulated clusters: `simulator FIRST COUNT` for many seeds, `simulator SEED trace` for all that happened in one.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let traced = arguments.get(1).is_some_and(|word| word == "trace");
    match (number(0), number(1)) {
        (Some(seed), _) if traced => {
            let (report, lines) = simulator::trace(seed);
            lines.iter().for_each(|line| println!("{line}"));
            println!("{report:#?}");
            ExitCode::from(u8::from(!report.violations.is_empty()))
        }
        (Some(first), Some(count)) => {
            let (mut failed, mut happenings, mut plans, mut recoveries) = (0, 0, 0, 0);
            for report in (first..first + count).map(simulator::run) {
                happenings += report.happenings;
                plans += report.plans;
                recoveries += report.recoveries;
                if !report.violations.is_empty() {
                    failed += 1;
                    println!(
                        "seed {} at {}: {:?}",
                        report.seed, report.ended, report.violations
                    );
                }
            }
            println!(
                "{count} seeds, {happenings} happenings, {plans} plans, {recoveries} recoveries, {failed} failed"
            );
            ExitCode::from(u8::from(failed > 0))
        }
        _ => {
            eprintln!("usage: simulator FIRST COUNT | simulator SEED trace");
            ExitCode::from(2)
        }
    }
}
