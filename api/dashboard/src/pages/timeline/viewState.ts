/** What the timeline shows, kept in the address. */

import { useCallback, useEffect, useRef, useState } from "react";
import { useSearchParams } from "react-router";

import { type View, viewFromWords, viewToWords } from "../../charts/range";

/** Wheel and drag change the view many times a second; the address follows when they rest. */
const REST_MS = 250;

/** The view and how to change it. Changes show at once; going back in the browser brings the view back. */
export function useView(): [View, (view: View) => void] {
  const [search, setSearch] = useSearchParams();
  const words = JSON.stringify([search.get("span"), search.get("from"), search.get("to")]);
  const [view, setView] = useState<View>(() => fromSearch(search));
  const written = useRef(words);
  const timer = useRef(0);

  useEffect(() => {
    if (words === written.current) return;
    written.current = words;
    setView(fromSearch(search));
  }, [words, search]);

  useEffect(() => () => window.clearTimeout(timer.current), []);

  const change = useCallback((next: View) => {
    setView(next);
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      setSearch((before) => {
        const after = new URLSearchParams(before);
        for (const name of ["span", "from", "to"]) after.delete(name);
        for (const [name, word] of Object.entries(viewToWords(next))) after.set(name, word);
        written.current = JSON.stringify([after.get("span"), after.get("from"), after.get("to")]);
        return after;
      }, { replace: true, preventScrollReset: true });
    }, REST_MS);
  }, [setSearch]);

  return [view, change];
}

function fromSearch(search: URLSearchParams): View {
  return viewFromWords({ span: search.get("span"), from: search.get("from"), to: search.get("to") });
}

/** One word of the address; the empty word is left out of it. */
export function useWord(name: string): [string, (word: string) => void] {
  const [search, setSearch] = useSearchParams();
  const change = useCallback((word: string) => {
    setSearch((before) => {
      const after = new URLSearchParams(before);
      if (word) after.set(name, word);
      else after.delete(name);
      return after;
    }, { replace: true, preventScrollReset: true });
  }, [name, setSearch]);
  return [search.get(name) ?? "", change];
}
