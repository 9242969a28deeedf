//! Spot markets: what they were, what they may be, what to do in them.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ClusterArgs, parse};

/// Of all commands on markets.
pub(super) const EXAMPLES: &str = "\
Examples:
  spotmux market show --trace us-west-2a_v100_1.json
  spotmux market bill";

/// What to do with markets.
#[derive(Debug, Subcommand)]
pub(crate) enum MarketCommand {
    /// Sums up recorded markets
    Show(ShowMarketArgs),
    /// Shows what the machines of a cluster have cost so far: in all, by job and by tenant
    Bill(BillArgs),
    /// Tries forecasters on a recorded market, from one point after the other
    Forecast(ForecastArgs),
    /// Plays policies through recorded markets and compares them with the best that could have been done
    Backtest(Box<BacktestArgs>),
    /// Tells why a policy holds so many machines in a slot, and what else could have been done
    Explain(Box<ExplainArgs>),
    /// Tells what would be done otherwise if something happened
    Whatif(Box<WhatifArgs>),
    /// Compares the machines on record with those that the provider shows
    Orphans(OrphansArgs),
}

/// Which market.
#[derive(Clone, Debug, Args)]
pub(crate) struct TraceArgs {
    /// Recorded markets, or capacities alone
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) trace: Vec<PathBuf>,
    /// Prices for traces that have capacities alone: a composite
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
    /// The pool of this name, where --prices has several: its zone, machine or zone/machine
    #[arg(long, value_name = "NAME", requires = "prices")]
    pub(crate) prices_pool: Option<String>,
    /// On-demand price of the machine whose prices --prices are; they are scaled from it to --on-demand
    #[arg(long, value_name = "USD", requires = "prices", value_parser = parse::dollars)]
    pub(crate) prices_on_demand: Option<f64>,
    /// Slots of --prices that are left out at its beginning
    #[arg(long, value_name = "SLOTS", default_value_t = 0, requires = "prices")]
    pub(crate) prices_skip: u64,
    /// Format of the files [default: told from what is in them]
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<String>,
    /// The pool of this zone, where a file has several
    #[arg(long, value_name = "ZONE")]
    pub(crate) zone: Option<String>,
    /// The pool of this name, where a zone has several: its machine or zone/machine
    #[arg(long, value_name = "NAME", conflicts_with = "zone")]
    pub(crate) pool: Option<String>,
    /// Length of a slot
    #[arg(long, value_name = "MINUTES", default_value_t = 30)]
    pub(crate) slot: u64,
    /// Price of a machine on demand for an hour [default: what the file says, or the median spot price over 0.3, or 1]
    #[arg(long, value_name = "USD", value_parser = parse::dollars)]
    pub(crate) on_demand: Option<f64>,
    /// Spot price for an hour where the file has none [default: 0.3 of the price on demand]
    #[arg(long, value_name = "USD", value_parser = parse::dollars)]
    pub(crate) spot_price: Option<f64>,
    /// Spot machines where the file does not say [default: as many as the job can use]
    #[arg(long, value_name = "N")]
    pub(crate) spot_machines: Option<u32>,
}

/// Which job.
#[derive(Clone, Debug, Args)]
pub(crate) struct ShapeArgs {
    /// Work, slots to the deadline and, if wanted, fewest and most machines; work is counted in what one machine does in a
    /// slot
    #[arg(long, value_name = "L,d[,MIN,MAX]", conflicts_with = "load")]
    pub(crate) job: Option<String>,
    /// Work as a share of what 12 machines do in 24 slots
    #[arg(
        long,
        value_name = "SHARE,...",
        value_delimiter = ',',
        default_value = "0.5",
        value_parser = parse::load
    )]
    pub(crate) load: Vec<f64>,
    /// Work of a slot by number of machines: linear, concave (0.72 n + 2 for 12 machines) or a file of lines "machines,work"
    #[arg(long, value_name = "linear|concave|FILE", default_value = "linear")]
    pub(crate) h: String,
    /// What finishing in time is worth, over the work at the price on demand
    #[arg(long, value_name = "TIMES", default_value_t = 1.5, value_parser = parse::times)]
    pub(crate) value: f64,
    /// Share of a slot that computes when machines are added
    #[arg(long, value_name = "SHARE", default_value_t = 0.9, value_parser = parse::share)]
    pub(crate) grow: f64,
    /// Share of a slot that computes when machines are given up
    #[arg(long, value_name = "SHARE", default_value_t = 0.95, value_parser = parse::share)]
    pub(crate) shrink: f64,
}

const SHOW: &str = "\
Examples:
  spotmux market show --trace us-west-2a_v100_1.json
  spotmux market show --trace prices.csv --zone us-east-1a --plot market.svg

Formats are told from what is in a file: docs/market.md lists them.";

/// Arguments of `spotmux market show`.
#[derive(Debug, Args)]
#[command(after_help = SHOW)]
pub(crate) struct ShowMarketArgs {
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    /// Draws prices and capacities into this file
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

const BILL: &str = "\
Examples:
  spotmux market bill
  spotmux market bill --json

A step carries tokens of several jobs, so what machines cost is split by tokens. Waste is what was paid for machines that held no \
work yet or any more, and for work that had to be done again. \"saved\" is against the same machines all on demand, \"by company\" \
against the job alone on machines on demand, as far as it was ever seen alone.";

/// Arguments of `spotmux market bill`.
#[derive(Debug, Args)]
#[command(after_help = BILL)]
pub(crate) struct BillArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const FORECAST: &str = "\
Examples:
  spotmux market forecast --trace us-west-2a_v100_1.json
  spotmux market forecast --trace prices.csv --zone us-east-1a --horizon 24 --plot band.svg

At points that lie evenly over the trace each model sees what came before and forecasts the next slots; then what came is \
held against it. Coverage is the share of values within the 10 to 90 % band: 0.8 is right. A model is used where it beats \
persistence by more than chance.";

/// Arguments of `spotmux market forecast`.
#[derive(Debug, Args)]
#[command(after_help = FORECAST)]
pub(crate) struct ForecastArgs {
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    /// Slots ahead
    #[arg(long, value_name = "SLOTS", default_value_t = 12, value_parser = parse::some)]
    pub(crate) horizon: usize,
    /// Most points to forecast from
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = parse::some)]
    pub(crate) points: usize,
    /// Draws the ensemble's forecast at three quarters of the trace into this file
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

const BACKTEST: &str = "\
Examples:
  spotmux market backtest --trace us-west-2a_v100_1.json --spot-price 0.35 --on-demand 1
  spotmux market backtest --trace us-west-2a_v100_1.json --prices g2.2xlarge-us-east-1e.csv --prices-on-demand 0.65 \
--load 0.3,0.5,0.7 --h concave --forecast perfect,noisy,real
  spotmux market backtest --trace market.jsonl --policy horizon,expectation --job 144,24,1,12 --plot cost.svg --json
  spotmux market backtest --together --trace us-west-2a_v100_1.json us-east-2b_v100_1.json --policy horizon

Policies: on-demand, maximal[=LIMIT], uniform, mixed, buy-ahead[=SIGMA], ross[=SEED], horizon[=WINDOW], c2g[=WINDOW], \
chain[=WINDOW], expectation[=SLOTS], selection (one that is learned among the standard pool).
Forecasts, for policies that plan: perfect, noisy[=ERROR], persistence, real (AR(1)), ensemble, proven (both slow).
\"of optimum\" is mean utility (what finishing is worth less what is paid) over that of a plan that knew the future; \"5th pct\" \
is of utility less that of the optimum.";

/// Arguments of `spotmux market backtest`.
#[derive(Debug, Args)]
#[command(after_help = BACKTEST)]
pub(crate) struct BacktestArgs {
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    /// Policies
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = POLICIES
    )]
    pub(crate) policy: Vec<String>,
    /// What policies that plan are told of the slots to come
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "real"
    )]
    pub(crate) forecast: Vec<String>,
    /// Slots from one start to the next
    #[arg(long, value_name = "SLOTS", default_value_t = 8, value_parser = parse::some)]
    pub(crate) every: usize,
    #[command(flatten)]
    pub(crate) together: TogetherArgs,
    /// Threads; results are the same for any number [default: one for each core]
    #[arg(long, value_name = "N", value_parser = parse::threads)]
    pub(crate) threads: Option<usize>,
    /// Draws mean cost against the deadline for the first cell into this file; takes six times as long
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

/// Who plays where nobody is named.
pub(crate) const POLICIES: &str =
    "on-demand,maximal,uniform,mixed,buy-ahead,ross,horizon,chain,expectation,selection";

/// Several traces as the places of one job.
#[derive(Clone, Debug, Args)]
pub(crate) struct TogetherArgs {
    /// Takes all traces as places of one job, which may move from one to another: who moves is compared with who stays, by all
    /// policies but selection
    #[arg(long, conflicts_with = "plot")]
    pub(crate) together: bool,
    /// Share of the slot of a move that computes
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.8,
        requires = "together",
        value_parser = parse::share
    )]
    pub(crate) move_share: f64,
    /// State that a move carries
    #[arg(
        long,
        value_name = "GIB",
        default_value_t = 1.0,
        requires = "together",
        value_parser = parse::amount
    )]
    pub(crate) state: f64,
    /// Egress of a gibibyte to another zone, region and cloud
    #[arg(
        long,
        value_name = "USD,USD,USD",
        value_delimiter = ',',
        default_value = "0.01,0.02,0.09",
        requires = "together",
        value_parser = parse::amount
    )]
    pub(crate) egress: Vec<f64>,
    /// What a move must be expected to earn
    #[arg(
        long,
        value_name = "USD",
        default_value_t = 0.0,
        requires = "together",
        value_parser = parse::amount
    )]
    pub(crate) hysteresis: f64,
}

/// When in a job's life, and who decides.
#[derive(Clone, Debug, Args)]
pub(crate) struct MomentArgs {
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    /// Slot of the trace in which the job begins [default: at two thirds]
    #[arg(long, value_name = "SLOT")]
    pub(crate) start: Option<usize>,
    /// Slot of the job that is looked at
    #[arg(long, value_name = "SLOT", default_value_t = 0)]
    pub(crate) at: u32,
    /// Policy
    #[arg(long, value_name = "NAME", default_value = "horizon")]
    pub(crate) policy: String,
    /// What it is told of the slots to come
    #[arg(long, value_name = "NAME", default_value = "real")]
    pub(crate) forecast: String,
}

const EXPLAIN: &str = "\
Examples:
  spotmux market explain --trace us-west-2a_v100_1.json --start 300 --at 4
  spotmux market explain --trace market.jsonl --job 144,24,1,12 --policy chain --at 12 --plot job.svg

Each number of machines is judged by playing the job on with it and then by the same policy, in a market that is what the \
policy expected. One that the safety net does not let pass could miss the deadline and is not taken.";

/// Arguments of `spotmux market explain`.
#[derive(Debug, Args)]
#[command(after_help = EXPLAIN)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    #[command(flatten)]
    pub(crate) moment: MomentArgs,
    /// Draws the market, the forecast of this slot and all decisions of the job into this file
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

const WHATIF: &str = "\
Examples:
  spotmux market whatif 'zone us-west-2a vanishes now' --trace us-west-2a_v100_1.json --at 4
  spotmux market whatif 'price doubles now for 6 slots' --trace market.jsonl --policy chain
  spotmux market whatif 'zone 2a vanishes now' --trace us-west-2a_v100_1.json us-east-2b_v100_1.json

Sentences: zone Z vanishes, every zone vanishes, zone Z has N machines, price doubles, price times F, on-demand runs out; \
each with \"now\" and \"for N slots\" if wanted. With several traces each is a zone: the job is in the first, and it is \
told too where it would rather be.";

/// Arguments of `spotmux market whatif`.
#[derive(Debug, Args)]
#[command(after_help = WHATIF)]
pub(crate) struct WhatifArgs {
    /// What happens
    #[arg(value_name = "SENTENCE")]
    pub(crate) sentence: String,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    #[command(flatten)]
    pub(crate) moment: MomentArgs,
}

const ORPHANS: &str = "\
Examples:
  spotmux market orphans
  spotmux market orphans --config my/cluster.toml --json
  spotmux market orphans --release

Without --release nothing is changed and no file is written; the code is 8 where a machine runs that nobody looks after. A market \
actor that runs releases by itself what is on no record; where none runs, as after `spotmux down`, --release ends the machines on \
record too.";

/// Arguments of `spotmux market orphans`.
#[derive(Debug, Args)]
#[command(after_help = ORPHANS)]
pub(crate) struct OrphansArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Ends the machines that run and are on no record or that no market actor looks after
    #[arg(long)]
    pub(crate) release: bool,
}

const MARKET_ACTOR: &str = "\
Examples:
  spotmux market-actor --config cluster.toml

`spotmux up` starts it where market.provider is not none. It keeps a record of machines in the state folder: started again, it \
goes on with them.";

/// Arguments of `spotmux market-actor`.
#[derive(Debug, Args)]
#[command(after_help = MARKET_ACTOR)]
pub(crate) struct MarketActorArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}
