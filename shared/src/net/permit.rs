//! Who may open what, and ask what: the table of rights, by role.

use super::identity::Role;
use crate::wire::opening::Opening;
use crate::wire::request::Request;

/// Whether a member of `peer`'s role may open such a stream at one of `host`'s role.
#[must_use]
pub fn may_open(peer: Role, host: Role, opening: &Opening) -> bool {
    match opening {
        Opening::Request => host == Role::Coordinator,
        Opening::Node => host == Role::Coordinator && peer == Role::GpuActor,
        Opening::Link(_) => host == Role::GpuActor && peer == Role::GpuActor,
    }
}

/// Whether a member of that role may ask this of the coordinator.
#[must_use]
pub fn may_ask(peer: Role, request: &Request) -> bool {
    match request {
        // Who has a certificate does not join; who has none asks on a connection of its own.
        Request::Join { .. } => false,
        Request::Renew { .. } => true,
        Request::Status | Request::Nodes => true,
        Request::Jobs | Request::Job(_) | Request::Events { .. } => {
            matches!(peer, Role::Client | Role::MarketActor | Role::Coordinator)
        }
        Request::Drain { .. } | Request::Migrate { .. } => {
            matches!(peer, Role::Client | Role::MarketActor)
        }
        Request::HasFile(_)
        | Request::PutFile(_)
        | Request::Submit(_)
        | Request::Cancel(_)
        | Request::Pause(_)
        | Request::Resume(_)
        | Request::Sample(_)
        | Request::Trace { .. }
        | Request::Fetch(_)
        | Request::Shutdown => peer == Role::Client,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_actor_ends_no_cluster_and_a_client_is_no_node() {
        assert!(!may_ask(Role::GpuActor, &Request::Shutdown));
        assert!(!may_ask(Role::MarketActor, &Request::Shutdown));
        assert!(may_ask(Role::Client, &Request::Shutdown));
        for role in Role::ALL {
            let signing_request = String::new();
            assert!(may_ask(role, &Request::Renew { signing_request }));
            let opens = may_open(role, Role::Coordinator, &Opening::Node);
            assert_eq!(opens, role == Role::GpuActor);
            assert!(!may_open(role, Role::GpuActor, &Opening::Request));
        }
    }
}
