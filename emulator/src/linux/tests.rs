//! Programs of our own.
