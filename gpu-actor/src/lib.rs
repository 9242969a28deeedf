//! gpu-actor
