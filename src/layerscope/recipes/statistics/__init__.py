"""The statistics that decide claims: functions of the results of an experiment's calls, with intervals over texts.

Each takes the results by the names of their calls. What is made of several similarities or scores of the same texts has
its interval by the jackknife over groups of texts, which goes through the whole function; so differences are text for
text. Errors of aligners on other texts (states and attention weights) are taken as if they were independent.
"""
