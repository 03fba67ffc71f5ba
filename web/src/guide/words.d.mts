export function words(text: string): string[];
