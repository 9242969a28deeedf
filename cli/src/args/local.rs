//! Starting and ending a cluster, its settings, its certificates, its health.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use shared::ids::NodeName;

use super::cluster::{ClusterArgs, Consent};

const UP: &str = "\
Examples:
  spotmux up
  spotmux up --detach && spotmux status
  spotmux up --config my/cluster.toml --set plan.stages=1

The coordinator and every listed node run as processes of their own, with logs under the cluster's state folder. \
Certificates are made at the first start. Ctrl-C ends all in order; the second at once.";

/// Arguments of `spotmux up`.
#[derive(Debug, Args)]
#[command(after_help = UP)]
pub(crate) struct UpArgs {
    /// Comes back when the cluster is ready; `spotmux down` ends it
    #[arg(long, short)]
    pub(crate) detach: bool,
    /// Seconds until it must be ready
    #[arg(long, value_name = "S", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) patience: u64,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const DOWN: &str = "\
Examples:
  spotmux down
  spotmux down --yes

States are stored before any node stops, and the last durable step of each job is told: the next `spotmux up` goes on \
from there. Exit code 14 when steps are lost, as when a node could not store what it had.";

/// Arguments of `spotmux down`.
#[derive(Debug, Args)]
#[command(after_help = DOWN)]
pub(crate) struct DownArgs {
    #[command(flatten)]
    pub(crate) consent: Consent,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// Of all commands on certificates.
pub(super) const CA_EXAMPLES: &str = "\
Examples:
  spotmux ca token gpu-7
  spotmux ca renew";

/// What to do with certificates.
#[derive(Debug, Subcommand)]
pub(crate) enum CaCommand {
    /// Makes the authority of a cluster, and what its processes on this machine need
    Init(CaInitArgs),
    /// Makes a certificate for a node, the coordinator or an operator
    Issue(CaIssueArgs),
    /// Makes a one-time token with which a machine joins by itself
    Token(CaTokenArgs),
    /// Has the operator's certificate of this machine made anew by the coordinator
    Renew(CaRenewArgs),
}

const CA_INIT: &str = "\
Examples:
  spotmux ca init

What is there is kept: nothing is overwritten. `spotmux up` does this by itself.";

/// Arguments of `spotmux ca init`.
#[derive(Debug, Args)]
#[command(after_help = CA_INIT)]
pub(crate) struct CaInitArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const CA_ISSUE: &str = "\
Examples:
  spotmux ca issue n4
  spotmux ca issue --role gpu-actor --name n4
  spotmux ca issue alice --operator --output alice.pem";

/// What a certificate makes its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IssueRole {
    /// A node that holds a stage of the backbone
    GpuActor,
    /// A person or program that gives orders
    Operator,
    /// The coordinator, on a machine without the authority
    Coordinator,
    /// The market actor, on a machine without the authority
    MarketActor,
}

/// Arguments of `spotmux ca issue`.
#[derive(Debug, Args)]
#[command(after_help = CA_ISSUE)]
pub(crate) struct CaIssueArgs {
    /// Whom it names
    #[arg(value_name = "NAME", required_unless_present = "named")]
    name: Option<NodeName>,
    /// The same
    #[arg(
        id = "named",
        long = "name",
        value_name = "NAME",
        conflicts_with = "name"
    )]
    named: Option<NodeName>,
    /// What its holder is
    #[arg(long, value_enum, default_value_t = IssueRole::GpuActor)]
    role: IssueRole,
    /// For a person or program that gives orders, not for a node: --role operator
    #[arg(long, conflicts_with = "role")]
    operator: bool,
    /// File to write [default: the role's place in the directory of certificates]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

impl CaIssueArgs {
    /// Whom it names.
    pub(crate) fn name(&self) -> Option<&NodeName> {
        self.name.as_ref().or(self.named.as_ref())
    }

    /// What its holder is.
    pub(crate) fn role(&self) -> IssueRole {
        match self.operator {
            true => IssueRole::Operator,
            false => self.role,
        }
    }
}

const CA_TOKEN: &str = "\
Examples:
  spotmux ca token n4
  spotmux ca token alice --operator

The token is shown once, lets one in, and ends after security.token_minutes.";

/// Arguments of `spotmux ca token`.
#[derive(Debug, Args)]
#[command(after_help = CA_TOKEN)]
pub(crate) struct CaTokenArgs {
    /// Whom it lets in
    #[arg(value_name = "NAME")]
    pub(crate) name: NodeName,
    /// For a person or program that gives orders, not for a node
    #[arg(long)]
    pub(crate) operator: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const CA_RENEW: &str = "\
Examples:
  spotmux ca renew

Every command that reaches the cluster does this by itself once two thirds of the certificate's life are over; \
nodes and the coordinator renew theirs while they run.";

/// Arguments of `spotmux ca renew`.
#[derive(Debug, Args)]
#[command(after_help = CA_RENEW)]
pub(crate) struct CaRenewArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const JOIN: &str = "\
Examples:
  spotmux join --coordinator 10.0.0.1:7420 --token - --name n4 < token.txt
  spotmux join --coordinator host:7420 --token spotmux-join-1... --name n4 --listen 10.0.0.4:7430
  spotmux join --coordinator host:7420 --token - --role operator --name alice

The token, made with `spotmux ca token`, names the cluster's authority: nobody else is believed, and nobody else is \
shown it. What is written is a certificate, and a cluster.toml where there is none.";

/// As what a machine joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum JoinRole {
    /// A node that holds a stage of the backbone
    GpuActor,
    /// A person or program that gives orders
    Operator,
}

/// Arguments of `spotmux join`.
#[derive(Debug, Args)]
#[command(after_help = JOIN)]
pub(crate) struct JoinArgs {
    /// Where the coordinator listens
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) coordinator: String,
    /// The token; `-` reads it from standard input, where no list of processes shows it
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: String,
    /// As what
    #[arg(long, value_enum, default_value_t = JoinRole::GpuActor)]
    pub(crate) role: JoinRole,
    /// The name that the token was made for
    #[arg(long, value_name = "NAME")]
    pub(crate) name: NodeName,
    /// Where a node listens (UDP) [default: port 7430 of the address that reaches the coordinator]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Where its neighbours reach it, if not there
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) advertise: Option<SocketAddr>,
    /// Compute threads of a node
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub(crate) threads: Option<u64>,
    /// Memory that a node offers
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=(64 << 20)))]
    pub(crate) memory_mib: Option<u64>,
    /// File of the cluster, written if it is not there [default: $SPOTMUX_CONFIG, then cluster.toml]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

const DOCTOR: &str = "\
Examples:
  spotmux doctor
  spotmux doctor --json";

/// Arguments of `spotmux doctor`.
#[derive(Debug, Args)]
#[command(after_help = DOCTOR)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// Of all commands on settings.
pub(super) const CONFIG_EXAMPLES: &str = "\
Examples:
  spotmux config init
  spotmux config show
  spotmux config check";

/// What to do with settings.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Shows every setting with its value, and where that came from
    Show(ConfigShowArgs),
    /// Looks for everything that cannot be
    Check(ConfigCheckArgs),
    /// Writes a complete cluster.toml to begin with
    Init(ConfigInitArgs),
}

const CONFIG_SHOW: &str = "\
Examples:
  spotmux config show
  spotmux config show --set plan.stages=all --json";

/// Arguments of `spotmux config show`.
#[derive(Debug, Args)]
#[command(after_help = CONFIG_SHOW)]
pub(crate) struct ConfigShowArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const CONFIG_CHECK: &str = "\
Examples:
  spotmux config check
  spotmux config check --config my/cluster.toml --json";

/// Arguments of `spotmux config check`.
#[derive(Debug, Args)]
#[command(after_help = CONFIG_CHECK)]
pub(crate) struct ConfigCheckArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const CONFIG_INIT: &str = "\
Examples:
  spotmux config init
  spotmux config init my/cluster.toml";

/// Arguments of `spotmux config init`.
#[derive(Debug, Args)]
#[command(after_help = CONFIG_INIT)]
pub(crate) struct ConfigInitArgs {
    /// File to write; it must not be there yet
    #[arg(value_name = "FILE", default_value = "cluster.toml")]
    pub(crate) file: PathBuf,
}

const REPL: &str = "\
Examples:
  spotmux repl
  echo 'jobs --all' | spotmux repl

Every line is a command without `spotmux` in front. Also: watch [-n S] COMMAND, source FILE, help, exit.";

/// Arguments of `spotmux repl`.
#[derive(Debug, Args)]
#[command(after_help = REPL)]
pub(crate) struct ReplArgs {
    #[command(flatten)]
    pub(crate) consent: Consent,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}
