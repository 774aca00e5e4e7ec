/** The sign of OpenEDT: workers over time. */

export function Mark() {
  return (
    <svg width="24" height="24" viewBox="0 0 32 32" aria-hidden>
      <rect width="32" height="32" rx="8" fill="#3f5bd9" />
      <path
        d="M7 21.5h4v-5h5v-4h5v-4h4"
        fill="none"
        stroke="#fff"
        strokeWidth="2.8"
        strokeLinecap="round"
        strokeLinejoin="round"
      />
      <circle cx="25" cy="8.5" r="2.4" fill="#9fe3c4" />
    </svg>
  );
}
