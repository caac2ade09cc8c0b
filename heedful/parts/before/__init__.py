"""What came before attention: recurrence, attentive decoders, convolution, lookup, ELMo's parts."""
