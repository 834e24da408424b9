//! Composition root: builds the parts, wires them, owns every task.
