//! What tests need: scripted engines, raw clients, child processes
