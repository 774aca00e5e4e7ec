import { Search } from "lucide-react";
import { useSearchParams } from "react-router";

import styles from "./QueryFilter.module.css";

/** A field whose words are the address's `q`, so that a filtered list can be linked to. */
export function QueryFilter({ label, placeholder }: { readonly label: string; readonly placeholder: string }) {
  const [search, setSearch] = useSearchParams();
  return (
    <label className={styles.filter}>
      <Search size={14} aria-hidden />
      <span className="visually-hidden">{label}</span>
      <input
        type="text"
        placeholder={placeholder}
        spellCheck={false}
        value={search.get("q") ?? ""}
        onChange={(event) => {
          const words = event.target.value;
          setSearch(
            (before) => {
              const after = new URLSearchParams(before);
              if (words) after.set("q", words);
              else after.delete("q");
              return after;
            },
            { replace: true },
          );
        }}
      />
    </label>
  );
}
