//! Text that others chose, for a terminal or a line of a report. It cannot move the cursor, hide other text or turn it round.

use unicode_width::UnicodeWidthChar;

/// Accents on one letter. More of them pile up over the lines above.
const ACCENTS_MAX: usize = 2;

/// The text, with characters replaced that a terminal would obey or not show: controls, directions of writing, those without width, and
/// accents in heaps.
pub fn clean(text: &str) -> String {
    let mut accents = 0;
    let drawn = text.chars().map(|one| {
        let is_accent = one.width() == Some(0);
        accents = if is_accent { accents + 1 } else { 0 };
        if is_drawable(one) && accents <= ACCENTS_MAX {
            one
        } else {
            '\u{fffd}'
        }
    });
    drawn.collect()
}

fn is_drawable(one: char) -> bool {
    !one.is_control()
        && !matches!(one,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}
