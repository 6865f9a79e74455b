//! Declaration of options structs: every field is written once, with its documentation.

/// Declares an options struct. The struct is `#[non_exhaustive]` and has a chainable setter for
/// each field. After the fields, their default values may follow.
#[macro_export]
macro_rules! options {
    (
        $(#[$attribute:meta])* pub struct $name:ident $(<$life:lifetime>)? { $($fields:tt)* }
        $({ $($defaults:tt)* })?
    ) => {
        $(#[$attribute])*
        #[non_exhaustive]
        pub struct $name $(<$life>)? { $($fields)* }

        impl $(<$life>)? $name $(<$life>)? {
            $crate::setters! { [] { $($fields)* } }
        }

        $(impl Default for $name {
            fn default() -> Self {
                Self { $($defaults)* }
            }
        })?
    };
}

/// Declares a chainable setter for each field of an options struct: in the struct itself, or in a
/// builder whose field `owner` is such a struct. The setter of an optional field also takes a plain
/// value. Default values after the fields are ignored.
#[macro_export]
macro_rules! setters {
    ([$($owner:ident)?] {}) => {};
    ([$($owner:ident)?] { $($fields:tt)* } { $($defaults:tt)* }) => {
        $crate::setters! { [$($owner)?] { $($fields)* } }
    };
    ([$($owner:ident)?] {
        $(#[$doc:meta])* pub $field:ident: Option<$type:ty>, $($rest:tt)*
    }) => {
        #[doc = concat!("Sets `", stringify!($field), "`.")]
        ///
        $(#[$doc])*
        #[must_use]
        pub fn $field(mut self, $field: impl Into<Option<$type>>) -> Self {
            self.$($owner.)? $field = $field.into();
            self
        }

        $crate::setters! { [$($owner)?] { $($rest)* } }
    };
    ([$($owner:ident)?] {
        $(#[$doc:meta])* pub $field:ident: $type:ty, $($rest:tt)*
    }) => {
        #[doc = concat!("Sets `", stringify!($field), "`.")]
        ///
        $(#[$doc])*
        #[must_use]
        pub fn $field(mut self, $field: $type) -> Self {
            self.$($owner.)? $field = $field;
            self
        }

        $crate::setters! { [$($owner)?] { $($rest)* } }
    };
}
