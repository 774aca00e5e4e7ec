import { describe, expect, it } from "vitest";

import { codeOf, type Dropped, likeliest } from "./code";
import { listArchive } from "./listing";
import { gzipped, tar } from "./tar";

const dropped = (path: string, text = "print()"): Dropped => ({ path, file: new File([text], path.split("/").at(-1) ?? "") });
const names = async (archive: Blob): Promise<readonly string[]> => (await listArchive(archive))?.paths ?? [];

describe("a tar made in the browser", () => {
  const long = `digits/${"deep/".repeat(30)}größe.py`;
  const files = [
    { path: "digits/main.py", data: new Blob(["print('hi')\n"]) }, { path: "digits/empty.txt", data: new Blob([]) },
    { path: long, data: new Blob(["x".repeat(1500)]) },
  ];

  it("lists what was packed, long names and other letters too, plain and through gzip", async () => {
    const packed = tar(files);
    expect(packed.size % 512).toBe(0);
    const all = ["digits/empty.txt", "digits/main.py", long];
    expect([...(await names(packed))].sort()).toEqual([...all].sort());
    expect([...(await names(await gzipped(packed)))].sort()).toEqual([...all].sort());
  });

  it("has headers whose checksums are right", async () => {
    const bytes = new Uint8Array(await tar(files.slice(0, 1)).arrayBuffer());
    const head = bytes.slice(0, 512);
    const checksum = Number.parseInt(new TextDecoder().decode(head.subarray(148, 154)), 8);
    head.fill(0x20, 148, 156);
    expect(head.reduce((sum, byte) => sum + byte, 0)).toBe(checksum);
    expect(new TextDecoder().decode(bytes.subarray(512, 523))).toBe("print('hi')");
  });
});

describe("a zip", () => {
  it("lists its files without being unpacked", async () => {
    // A central directory of digits/ (a folder), digits/main.py and a.txt, and the end that points to it.
    const entry = (name: string): number[] => [
      0x50, 0x4b, 1, 2, ...new Array<number>(24).fill(0), name.length, 0, ...new Array<number>(16).fill(0),
      ...new TextEncoder().encode(name),
    ];
    const central = [...entry("digits/"), ...entry("digits/main.py"), ...entry("a.txt")];
    const little = (value: number): number[] => [value & 255, (value >> 8) & 255, 0, 0];
    const end = [0x50, 0x4b, 5, 6, 0, 0, 0, 0, 3, 0, 3, 0, ...little(central.length), ...little(4), 0, 0];
    const zip = new Blob([new Uint8Array([0x50, 0x4b, 3, 4, ...central, ...end])]);
    expect(await names(zip)).toEqual(["digits/main.py", "a.txt"]);
  });

  it("that is cut short lists nothing", async () => {
    expect(await listArchive(new Blob(["PK\x03\x04 and no end"]))).toBeNull();
  });
});

describe("what is dropped", () => {
  it("is a script as it is", async () => {
    const code = await codeOf([dropped("train.py")]);
    expect(code).toMatchObject({ kind: "script", name: "train.py", scripts: ["train.py"], modelDir: null });
    expect((await code.archive()).name).toBe("train.py");
  });

  it("is a folder, in which the job starts; what is never code stays here", async () => {
    const code = await codeOf([
      dropped("digits/main.py"), dropped("digits/lib/net.py"), dropped("digits/.git/config"), dropped("digits/__pycache__/main.pyc"),
    ]);
    expect(code).toMatchObject({ kind: "folder", name: "digits", modelDir: "digits", files: 2, leftOut: 2, gathered: [] });
    expect(code.scripts).toEqual(["main.py", "lib/net.py"]);
    expect(await names((await code.archive()).data)).toEqual(["digits/lib/net.py", "digits/main.py"]);
  });

  it("is several files, which become one folder", async () => {
    const code = await codeOf([dropped("b.py"), dropped("main.py")]);
    expect(code).toMatchObject({ kind: "folder", name: "code", modelDir: "code", gathered: ["b.py", "main.py"], scripts: ["main.py", "b.py"] });
    expect(await names((await code.archive()).data)).toEqual(["code/b.py", "code/main.py"]);
  });

  it("is an archive, sent as it is, and the job starts in its one folder", async () => {
    const data = await gzipped(tar([{ path: "net/main.py", data: new Blob(["1"]) }, { path: "net/a/b.py", data: new Blob([]) }]));
    const code = await codeOf([{ path: "net.tar.gz", file: new File([data], "net.tar.gz") }]);
    expect(code).toMatchObject({ kind: "archive", modelDir: "net", scripts: ["main.py", "a/b.py"], whole: true });
    expect((await code.archive()).data.size).toBe(data.size);
  });

  it("is an archive without a folder of its own: the job starts at its top", async () => {
    const code = await codeOf([{ path: "a.tar", file: new File([tar([{ path: "main.py", data: new Blob([]) }, { path: "x/b.py", data: new Blob([]) }])], "a.tar") }]);
    expect(code).toMatchObject({ modelDir: null, scripts: ["main.py", "x/b.py"] });
  });

  it.each([
    [[dropped("notes.txt")], "notes.txt is neither a Python script"],
    [[], "no file"],
    [[dropped("x/.git/config")], "nothing in it but"],
  ])("is refused with a sentence where it is no code", async (files, sentence) => {
    await expect(codeOf(files)).rejects.toThrow(sentence);
  });

  it("offers the likeliest script first", () => {
    expect(likeliest(["z/main.py", "util.py", "train.py", "readme.md"])).toEqual(["train.py", "util.py", "z/main.py"]);
  });
});

describe("a tar with files larger than what is read at once", () => {
  it("lists the names behind them", async () => {
    const files = ["a.bin", "b.bin", "main.py"].map((path, at) => ({ path, data: new Blob([new Uint8Array(300_000 + at * 77_777).fill(at + 1)]) }));
    expect(await names(tar(files))).toEqual(["a.bin", "b.bin", "main.py"]);
    expect(await names(await gzipped(tar(files)))).toEqual(["a.bin", "b.bin", "main.py"]);
  });

  it("made by others, with ./ before each name, is listed without it", async () => {
    expect(await names(tar([{ path: "./main.py", data: new Blob(["x"]) }, { path: "./lib/a.py", data: new Blob([]) }]))).toEqual(["lib/a.py", "main.py"]);
  });
});
