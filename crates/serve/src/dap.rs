//! Editors.
