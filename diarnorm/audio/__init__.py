"""Audio in: files, pipes, any WAV that people have; mono 16 kHz out."""
