//! Random sequences of proposals, for a comparison with the model.
