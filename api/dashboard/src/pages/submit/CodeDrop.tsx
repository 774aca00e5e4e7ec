/** Where code is dropped or chosen, and what it was. */

import { FileArchive, FileCode2, FolderCode, FolderOpen, Sparkles, Upload, X } from "lucide-react";
import { type DragEvent, useId, useRef, useState } from "react";

import { Button } from "../../components/Button";
import { Frame } from "../../components/Field";
import { bytes, plural } from "../../components/format";
import { type Code, codeOf, type Dropped } from "./code/code";
import { chosenFiles, droppedFiles } from "./code/dropped";
import styles from "./Submit.module.css";

export interface CodeDropProps {
  readonly code: Code | null;
  readonly error: string | undefined;
  readonly onCode: (code: Code | null) => void;
  /** null: there is none. */
  readonly onExample: (() => void) | null;
}

const ICONS = { script: FileCode2, folder: FolderCode, archive: FileArchive } as const;

export function CodeDrop({ code, error, onCode, onExample }: CodeDropProps) {
  const id = useId();
  const files = useRef<HTMLInputElement>(null);
  const folder = useRef<HTMLInputElement>(null);
  const [over, setOver] = useState(false);
  const [busy, setBusy] = useState(false);
  const [refused, setRefused] = useState<string | null>(null);

  const take = async (gather: Promise<readonly Dropped[]>): Promise<void> => {
    setBusy(true);
    setRefused(null);
    try {
      onCode(await codeOf(await gather));
    } catch (problem) {
      onCode(null);
      setRefused(problem instanceof Error ? problem.message : String(problem));
    } finally {
      setBusy(false);
    }
  };
  const drop = (event: DragEvent): void => {
    event.preventDefault();
    setOver(false);
    void take(droppedFiles(event.dataTransfer));
  };
  const chosen = (input: HTMLInputElement): void => {
    if (input.files && input.files.length > 0) void take(Promise.resolve(chosenFiles(input.files)));
    input.value = ""; // the same file can be chosen again after it was changed
  };
  const wrong = refused ?? error;
  const Icon = code ? ICONS[code.kind] : Upload;
  return (
    <Frame id={id} label="Code" error={wrong}>
      <div
        className={styles.drop} data-over={over} data-wrong={wrong !== undefined} data-full={code !== null} aria-busy={busy}
        onDragEnter={(event) => event.preventDefault()}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={drop}
      >
        <span className={styles.dropIcon}><Icon size={20} strokeWidth={1.7} aria-hidden /></span>
        <div className={styles.dropWords} aria-live="polite">
          {code ? <Taken code={code} /> : (
            <>
              <strong>{over ? "Let go" : "Drop a script, a folder, or a .zip or .tar.gz"}</strong>
              <span>Folders and several files are packed here, in the browser.</span>
            </>
          )}
        </div>
        <div className={styles.dropButtons}>
          <Button size="small" icon={Upload} onClick={() => files.current?.click()}>{code ? "Other files" : "Choose files"}</Button>
          <Button size="small" icon={FolderOpen} onClick={() => folder.current?.click()}>{code ? "Other folder" : "Choose a folder"}</Button>
          {code ? (
            <Button size="small" look="ghost" icon={X} onClick={() => onCode(null)}>Clear</Button>
          ) : onExample && (
            <Button size="small" look="ghost" icon={Sparkles} onClick={onExample}>Try the example</Button>
          )}
        </div>
        <input
          ref={files} id={id} type="file" multiple className="visually-hidden" tabIndex={-1} aria-invalid={wrong !== undefined || undefined}
          onChange={(event) => chosen(event.target)}
        />
        <input
          ref={folder} type="file" className="visually-hidden" aria-label="Folder" tabIndex={-1} {...{ webkitdirectory: "" }}
          onChange={(event) => chosen(event.target)}
        />
      </div>
    </Frame>
  );
}

function Taken({ code }: { readonly code: Code }) {
  const many = code.kind === "script" ? "" : code.files > 0 ? `${plural(code.files, "file")}, ` : "";
  return (
    <>
      <strong>{code.gathered.length > 0 ? plural(code.files, "file") : code.name}</strong>
      <span className="num">
        {code.gathered.length > 0 ? `sent as the folder ${code.name}, ` : many}
        {bytes(code.bytes)}
        {code.leftOut > 0 ? `; ${plural(code.leftOut, "file")} of caches and versions left out` : ""}
      </span>
    </>
  );
}
