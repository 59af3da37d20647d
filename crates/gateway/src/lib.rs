//! The data plane: listeners, upstream pools, streaming
