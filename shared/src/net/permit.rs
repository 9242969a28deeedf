//! Who may open what, and ask what: the table of rights, by role.

use super::identity::Role;
use crate::wire::opening::Opening;
use crate::wire::request::Request;

/// Whether a member of `peer`'s role may open such a stream at one of `host`'s role.
#[must_use]
pub fn may_open(peer: Role, host: Role, opening: &Opening) -> bool {
    match opening {
        // Of a node, another asks for files of the backbone.
        Opening::Request => {
            host == Role::Coordinator || (host == Role::GpuActor && peer == Role::GpuActor)
        }
        Opening::Node => host == Role::Coordinator && peer == Role::GpuActor,
        Opening::Link(_) => host == Role::GpuActor && peer == Role::GpuActor,
    }
}

/// Whether a member of that role may ask this of one of `host`'s role.
#[must_use]
pub fn may_ask(peer: Role, host: Role, request: &Request) -> bool {
    if let Request::BackboneFile { .. } = request {
        return peer == Role::GpuActor;
    }
    host == Role::Coordinator && may_ask_the_coordinator(peer, request)
}

fn may_ask_the_coordinator(peer: Role, request: &Request) -> bool {
    match request {
        // Who has a certificate does not join; who has none asks on a connection of its own.
        Request::Join(_) => false,
        Request::Renew { .. } => true,
        Request::Status | Request::Nodes => true,
        Request::Backbone | Request::BackboneFile { .. } => peer == Role::GpuActor,
        Request::Jobs | Request::Job(_) | Request::Events { .. } | Request::Plan => {
            matches!(peer, Role::Client | Role::MarketActor | Role::Coordinator)
        }
        // Machines that are taken are emptied, and a budget that is used up pauses.
        Request::Drain { .. }
        | Request::Reclaim { .. }
        | Request::Risk { .. }
        | Request::Migrate { .. }
        | Request::Pause(_) => {
            matches!(peer, Role::Client | Role::MarketActor)
        }
        Request::Market(_) => peer == Role::MarketActor,
        Request::HasFile(_)
        | Request::PutFile(_)
        | Request::Submit(_)
        | Request::Cancel(_)
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
        let ask = |peer, request| may_ask(peer, Role::Coordinator, &request);
        assert!(!ask(Role::GpuActor, Request::Shutdown));
        assert!(!ask(Role::MarketActor, Request::Shutdown));
        assert!(ask(Role::Client, Request::Shutdown));
        for role in Role::ALL {
            let signing_request = String::new();
            assert!(ask(role, Request::Renew { signing_request }));
            let opens = may_open(role, Role::Coordinator, &Opening::Node);
            assert_eq!(opens, role == Role::GpuActor);
            let asks_a_node = may_open(role, Role::GpuActor, &Opening::Request);
            assert_eq!(asks_a_node, role == Role::GpuActor);
            assert_eq!(ask(role, Request::Backbone), role == Role::GpuActor);
            // A node answers for its files only.
            assert!(!may_ask(role, Role::GpuActor, &Request::Status));
            assert!(!may_ask(role, Role::GpuActor, &Request::Backbone));
        }
    }
}
