//! Templates.

/// Named templates.
pub const FALLBACKS: &[(&str, &str)] = &[];
