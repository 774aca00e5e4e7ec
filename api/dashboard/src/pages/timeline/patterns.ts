/** Patterns that a canvas lays over a colour: a job's, and the hatch of a node in trouble. */

/** A tile drawn once at the screen's resolution. */
function tile(
  context: CanvasRenderingContext2D, size: number, draw: (tile: CanvasRenderingContext2D) => void,
): CanvasPattern | null {
  const ratio = devicePixelRatio;
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = Math.round(size * ratio);
  const inside = canvas.getContext("2d");
  if (!inside) return null;
  inside.scale(canvas.width / size, canvas.height / size);
  draw(inside);
  const pattern = context.createPattern(canvas, "repeat");
  pattern?.setTransform(new DOMMatrix().scale(size / canvas.width, size / canvas.height));
  return pattern;
}

function stripes(rising: boolean, colour: string, size: number, width: number) {
  return (inside: CanvasRenderingContext2D): void => {
    inside.strokeStyle = colour;
    inside.lineWidth = width;
    inside.beginPath();
    for (const shift of [-size, 0, size]) {
      inside.moveTo(shift - 1, rising ? size + 1 : -1);
      inside.lineTo(shift + size + 1, rising ? -1 : size + 1);
    }
    inside.stroke();
  };
}

/** The patterns of jobs by their number; the first is none. */
export function jobPatterns(context: CanvasRenderingContext2D): readonly (CanvasPattern | null)[] {
  const white = "rgba(255, 255, 255, 0.36)";
  return [
    null,
    tile(context, 8, stripes(true, white, 8, 2)),
    tile(context, 8, stripes(false, white, 8, 2)),
    tile(context, 6, (inside) => {
      inside.fillStyle = "rgba(255, 255, 255, 0.45)";
      inside.beginPath();
      inside.arc(3, 3, 1.1, 0, 7);
      inside.fill();
    }),
  ];
}

export function hatch(context: CanvasRenderingContext2D, colour: string): CanvasPattern | null {
  return tile(context, 10, stripes(true, colour, 10, 1.5));
}
