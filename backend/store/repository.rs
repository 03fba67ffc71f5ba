//! The macro that makes the repository of each noun of the store.

/// A part of the store: the queries about one noun.
macro_rules! repository {
    ($(#[$about:meta])* $name:ident, $accessor:ident) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<'a>(&'a crate::store::Store);

        impl crate::store::Store {
            pub fn $accessor(&self) -> $name<'_> {
                $name(self)
            }
        }

        impl std::ops::Deref for $name<'_> {
            type Target = crate::store::Store;

            fn deref(&self) -> &crate::store::Store {
                self.0
            }
        }
    };
}
