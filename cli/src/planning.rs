//! Pieces of `spotmux plan`, `quote` and `simulate`: from files and words to the planner's question, and its answer shown.

pub(crate) mod backbone;
pub(crate) mod jobs;
pub(crate) mod live;
pub(crate) mod nodes;
pub(crate) mod problem;
pub(crate) mod profiles;
pub(crate) mod shapes;
pub(crate) mod shown;
