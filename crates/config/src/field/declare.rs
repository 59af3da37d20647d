//! The macro that declares sections.

/// Declares a section: a struct, and everything that is known about its keys.
///
/// `..` adds another section's keys to this one's; `check` names a function for rules that concern several keys.
macro_rules! settings {
    ($(
        $(#[doc = $section_doc:literal])*
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $field:ident : $ty:ty { $($what:ident : $value:expr),* $(,)? },
            )*
            $(.. $(#[doc = $flat_doc:literal])* $flat:ident : $flat_ty:ty,)?
        }
        $(check $check:path;)?
    )*) => {$(
        $(#[doc = $section_doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $( $(#[doc = $doc])* pub $field: $ty, )*
            $( $(#[doc = $flat_doc])* pub $flat: $flat_ty, )?
        }

        impl $name {
            $(
                #[allow(non_upper_case_globals)]
                const $field: $crate::field::Spec = $crate::field::Spec {
                    key: stringify!($field),
                    doc: &[$($doc),*],
                    $($what: $value,)*
                    ..$crate::field::Spec::EMPTY
                };
            )*

            pub(crate) fn described_keys() -> Vec<($crate::field::Spec, $crate::field::Shape)> {
                #[allow(unused_mut)]
                let mut keys = vec![$( (Self::$field, <$ty as $crate::field::Field>::shape()), )*];
                $( keys.extend(<$flat_ty>::described_keys()); )?
                keys
            }

            /// The keys alone: reading thousands of items must not build their shapes each time.
            pub(crate) fn specs() -> Vec<&'static $crate::field::Spec> {
                #[allow(unused_mut)]
                let mut specs = vec![$( &Self::$field ),*];
                $( specs.extend(<$flat_ty>::specs()); )?
                specs
            }

            pub(crate) fn fill(
                section: &mut $crate::field::Section<'_>,
                reader: &mut $crate::field::Reader,
            ) -> Option<Self> {
                $( let $field = section.take::<$ty>(&Self::$field, reader); )*
                $( let $flat = <$flat_ty>::fill(section, reader); )?
                Some(Self { $($field: $field?,)* $($flat: $flat?,)? })
            }
        }

        impl $crate::field::Field for $name {
            fn read(
                node: &$crate::node::Node,
                spec: &$crate::field::Spec,
                reader: &mut $crate::field::Reader,
            ) -> Option<Self> {
                let mut section = $crate::field::Section::open(node, spec, &Self::specs(), reader)?;
                let value = Self::fill(&mut section, reader)?;
                $( $check(&value, node, reader); )?
                section.is_whole().then_some(value)
            }

            fn absent(
                spec: &$crate::field::Spec,
                around: &$crate::node::Node,
                reader: &mut $crate::field::Reader,
            ) -> Option<Self> {
                Self::read(&$crate::node::Node::empty_map(around.span), spec, reader)
            }

            fn shape() -> $crate::field::Shape {
                $crate::field::Shape::Section(Self::described_keys())
            }

            fn changed(
                &self,
                other: &Self,
                _: &$crate::field::Spec,
                path: &str,
                out: &mut Vec<String>,
            ) {
                let dot = if path.is_empty() { "" } else { "." };
                $( $crate::field::Field::changed(
                    &self.$field,
                    &other.$field,
                    &Self::$field,
                    &format!("{path}{dot}{}", stringify!($field)),
                    out,
                ); )*
                $( $crate::field::Field::changed(
                    &self.$flat,
                    &other.$flat,
                    &$crate::field::Spec::EMPTY,
                    path,
                    out,
                ); )?
            }
        }
    )*};
}
pub(crate) use settings;
