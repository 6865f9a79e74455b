// Cooperative matrices of 8 by 8: W in f16 times x in f16 makes y in f32.

enable f16;
enable wgpu_cooperative_matrix;

const SIDE = 8u;

alias FragmentW = coop_mat8x8<f16, A>;
alias FragmentX = coop_mat8x8<f16, B>;
alias FragmentY = coop_mat8x8<f32, C>;
