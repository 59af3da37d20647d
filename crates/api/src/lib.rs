//! Request and response formats of inference APIs, read no further than routing needs
