/**
 * The words of a text: `Last-Event-ID` is one, and its parts are words as well; single letters are none. The index is
 * built with it (scripts/guide.mjs) and asked with it, in JavaScript because Node.js has to read it.
 *
 * @param {string} text
 * @returns {string[]}
 */
export function words(text) {
    const whole = text.match(/[\p{L}\p{N}]+(?:[-_.][\p{L}\p{N}]+)*/gu) ?? [];
    const all = whole.flatMap((word) => {
        const parts = word.split(/[-_.]/);
        return parts.length > 1 ? [word, ...parts] : parts;
    });
    return all.filter((word) => word.length > 1);
}
