//! The configuration: one definition for file and flags, with errors that point at the place
