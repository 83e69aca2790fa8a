//! What the command line promises.
