//! The whole program, tried from outside. The tests are in `tests/`; this holds what several of them start from.
