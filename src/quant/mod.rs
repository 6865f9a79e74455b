//! Block formats: layout, reference decode and encode, one file per family.
