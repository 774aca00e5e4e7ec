/** Command lines: cutting one into words as the API does, and quoting words for a shell. Pure. */

/** A command line that cannot be cut; the message says what is wrong. */
export class UnclosedQuote extends Error {}

/**
 * The words of a line, as api/edt_api/submissions/shell_words.py cuts them: blanks part, quotes and backslashes work as in a shell,
 * nothing is expanded.
 */
export function splitWords(line: string): string[] {
  const words: string[] = [];
  let word: string | null = null;
  for (let at = 0; at < line.length; at++) {
    const letter = line[at] as string;
    if (/\s/.test(letter)) {
      if (word !== null) words.push(word);
      word = null;
    } else if (letter === "\\") {
      const next = line[at + 1];
      if (next === undefined) throw new UnclosedQuote("a backslash at the very end escapes nothing");
      at += 1;
      if (next === "\n") continue;
      word = (word ?? "") + next;
    } else if (letter === "'" || letter === '"') {
      const [text, end] = quoted(line, at);
      word = (word ?? "") + text;
      at = end;
    } else {
      word = (word ?? "") + letter;
    }
  }
  if (word !== null) words.push(word);
  return words;
}

/** What stands between the quote at `start` and its fellow, and where that is. */
function quoted(line: string, start: number): [string, number] {
  const quote = line[start] as string;
  let text = "";
  for (let at = start + 1; at < line.length; at++) {
    const letter = line[at] as string;
    if (letter === quote) return [text, at];
    const next = line[at + 1];
    if (quote === '"' && letter === "\\" && next !== undefined && '"\\$`\n'.includes(next)) {
      if (next !== "\n") text += next;
      at += 1;
    } else {
      text += letter;
    }
  }
  throw new UnclosedQuote(`the ${quote} at character ${start + 1} is never closed`);
}

/** A word as a shell takes it: bare where that is safe, else in quotes. */
export function quote(word: string): string {
  if (word === "") return "''";
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

export const joinWords = (words: readonly string[]): string => words.map(quote).join(" ");

/** The command of a framework as people read it: `{python}` and `{main}` stand there as they are. */
export function commandText(words: readonly string[]): string {
  return words.map((word) => (/[\s'"\\]/.test(word) || word === "" ? quote(word) : word)).join(" ");
}
