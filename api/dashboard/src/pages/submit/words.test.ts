import { describe, expect, it } from "vitest";

import { joinWords, quote, splitWords } from "./words";

describe("a command line", () => {
  it.each([
    ["--epochs 20", ["--epochs", "20"]],
    ["  a   b\tc\n", ["a", "b", "c"]],
    [`--name 'two words' "and \\"more\\""`, ["--name", "two words", 'and "more"']],
    [`a'b'"c"d`, ["abcd"]],
    [`''`, [""]],
    ["a\\ b", ["a b"]],
    ["a \\\n b", ["a", "b"]],
    [`"a\\nb"`, ["a\\nb"]],
    ["", []],
  ])("%j is cut into words as the API cuts it", (line, words) => {
    expect(splitWords(line)).toEqual(words);
  });

  it.each(["'open", '"open', "a\\"])("that is cut short (%j) is refused with a sentence", (line) => {
    expect(() => splitWords(line)).toThrow(/never closed|escapes nothing/);
  });
});

describe("a word for a shell", () => {
  it("is bare where that is safe", () => {
    expect(quote("--epochs=20")).toBe("--epochs=20");
    expect(quote("data/mnist_1.npz")).toBe("data/mnist_1.npz");
  });

  it("is quoted where a shell would read something into it", () => {
    expect(quote("$HOME *")).toBe("'$HOME *'");
    expect(quote("it's")).toBe(`'it'"'"'s'`);
    expect(quote("")).toBe("''");
    expect(quote("größe")).toBe("'größe'");
  });

  it("comes back as it was", () => {
    const words = ["a b", "it's", 'say "hi"', "$X", "back\\slash", "", "new\nline", "--x=1"];
    expect(splitWords(joinWords(words))).toEqual(words);
  });
});
