"""The demo's pure parts, its picture, and what it says to a platform. A whole run is what `make demo` is for."""
