//! The capabilities of Anthropic's models, by their names.

/// A model's family and version, wherever they are in its name.
#[derive(Debug, Default)]
pub(super) struct Claude {
    family: Family,
    version: (u32, u32),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Family {
    Opus,
    Sonnet,
    Haiku,
    /// Fable and Mythos.
    Later,
    /// The names of Claude 3 begin with the version.
    Three,
    #[default]
    Unknown,
}

impl Claude {
    pub(super) fn parse(model: &str) -> Self {
        let Some((_, name)) = model.split_once("claude-") else { return Self::default() };
        let mut words = name.split(['-', '@', ':']);
        let family = match words.next().unwrap_or_default() {
            "opus" => Family::Opus,
            "sonnet" => Family::Sonnet,
            "haiku" => Family::Haiku,
            "fable" | "mythos" => Family::Later,
            "3" => Family::Three,
            _ => Family::Unknown,
        };
        // A longer number is a date.
        let mut numbers = words.map_while(|word| word.parse().ok().filter(|_| word.len() <= 2));
        Self { family, version: (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) }
    }

    /// Whether it takes an effort in place of a budget.
    pub(super) fn has_effort(&self) -> bool {
        self.is_adaptive() || (self.family == Family::Opus && self.version >= (4, 5))
    }

    /// Whether it has adaptive thinking, and with it the effort `max`.
    pub(super) fn is_adaptive(&self) -> bool {
        match self.family {
            Family::Opus | Family::Sonnet => self.version >= (4, 6),
            Family::Haiku => self.version >= (5, 0),
            Family::Later => true,
            Family::Three | Family::Unknown => false,
        }
    }

    /// Whether it thinks by default, and this can be disabled.
    pub(super) fn thinks_unasked(&self) -> bool {
        matches!(self.family, Family::Opus | Family::Sonnet | Family::Haiku) && self.version >= (5, 0)
    }

    /// The longest answer, tokens. Anthropic requires a number in each request.
    pub(super) fn tokens_max(&self) -> u32 {
        match (self.family, self.version) {
            (Family::Opus, (4, 8..) | (5.., _)) | (Family::Haiku, (5.., _)) | (Family::Later, _) => 128_000,
            (Family::Opus, (4, 0..=4)) => 32_000,
            (Family::Three, (5, _)) => 8_192,
            (Family::Three, (0, _)) => 4_096,
            _ => 64_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_can_do_is_known_by_its_name() {
        for (model, effort, adaptive, unasked, tokens) in [
            ("claude-opus-4-8", true, true, false, 128_000),
            ("anthropic/claude-opus-4-6-20260101", true, true, false, 64_000),
            ("claude-opus-4-5-20251101", true, false, false, 64_000),
            ("claude-opus-4-20250514", false, false, false, 32_000),
            ("us.anthropic.claude-sonnet-5", true, true, true, 64_000),
            ("claude-sonnet-4-5", false, false, false, 64_000),
            ("claude-haiku-4-5", false, false, false, 64_000),
            ("claude-haiku-5", true, true, true, 128_000),
            ("claude-3-7-sonnet-latest", false, false, false, 64_000),
            ("claude-3-5-haiku-20241022", false, false, false, 8_192),
            ("claude-3-haiku-20240307", false, false, false, 4_096),
            ("claude-mythos-preview", true, true, false, 128_000),
            ("another", false, false, false, 64_000),
        ] {
            let claude = Claude::parse(model);
            let found = (claude.has_effort(), claude.is_adaptive(), claude.thinks_unasked(), claude.tokens_max());
            assert_eq!(found, (effort, adaptive, unasked, tokens), "{model}");
        }
    }
}
