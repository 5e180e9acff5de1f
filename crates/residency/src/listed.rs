//! [`listed`]: an enum of which no value is missing from the list of all, or without a name.

/// Makes the enum with its `ALL` and `as_str`.
macro_rules! listed {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $value:ident = $text:literal,)+ }) => {
        $(#[$about])*
        pub enum $name {
            $($(#[$doc])* $value,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$value),+];

            /// As programs read it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }
        }
    };
}

pub(crate) use listed;
