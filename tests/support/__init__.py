"""What tests share: real parts, made with as few words as possible, in a wing for each subject."""
