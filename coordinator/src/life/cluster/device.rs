//! A device that hangs costs its node the seat; one that is back makes it a spare. CL-9
//!
//! Its node is heard as ever: the connection stays, so that it is told to let go, and so that its device can be seen to
//! come back. What it does meanwhile is of an older plan, and changes nothing.

use shared::ids::NodeName;
use shared::units::Micros;

use super::Coordinator;
use crate::record::Change;

impl Coordinator {
    /// A heartbeat tells how long the device of a node is at its work.
    pub(super) fn look_at_device(&mut self, name: &NodeName, age: Micros) {
        let bound = self.settings.bounds.device;
        let Some(node) = self.members.get_mut(name) else {
            return;
        };
        let patience = node.device.patience(bound);
        if !node.device.beat(age, bound) {
            return;
        }
        if node.device.hangs {
            let reason = format!(
                "its device has been at one piece of work for {age}, and at most {patience} are believed \
                 (coordinator.device_patience_seconds; ten times its longest before, and never more than ten times that setting)"
            );
            self.lose(name, &reason);
        } else {
            node.gone = false;
            let (node, incarnation) = (name.clone(), node.hello.incarnation);
            self.record(Change::NodeJoined { node, incarnation });
        }
    }
}
