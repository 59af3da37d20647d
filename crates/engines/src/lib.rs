//! One adapter an engine: metrics names, detection, model lists
